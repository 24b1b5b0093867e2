import { writeFileSync } from 'node:fs';
import cliProgress from 'cli-progress';
import { startRedisServer } from '../../dist-sample/servers/redis-server.js';
import { readOptions } from './options.mjs';
import { peerVersions } from './peers/versions.mjs';
import { RedisControl } from './redis-control.mjs';
import { environmentOf } from './report/environment.mjs';
import { factLines } from './report/facts.mjs';
import { markdownOf } from './report/markdown.mjs';
import { writeMarkdown } from './report/markdown-file.mjs';
import { terminalTable } from './report/terminal.mjs';
import { runScenario, tableOf, turnsOf } from './run.mjs';
import { killWorkers } from './worker/worker-process.mjs';

const INTERRUPTED = 130;

/** Measures what the command line says, and ends with 1 if that failed. Only figures of one run can be compared. */
export async function runBenchmark(benchmark) {
  const options = readOptions(benchmark, process.argv.slice(2));
  const interruption = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => {
      console.error('\nCleaning up');
      interruption.abort();
      killWorkers();
    });
  }
  try {
    await bench(benchmark, options, interruption.signal);
  } catch (error) {
    if (!interruption.signal.aborted) console.error(error);
    process.exitCode = interruption.signal.aborted ? INTERRUPTED : 1;
  }
}

async function bench({ command, peers: catalogue, packages }, options, signal) {
  const wanted = options.peers.map((name) => catalogue[name]);
  const installation = await packages.install(wanted, options.directory, signal);
  const server = await startRedisServer();
  const control = new RedisControl(server.port);
  try {
    const environment = await environmentOf(control);
    const peers = peerVersions(catalogue, options.peers, installation);
    console.log(factLines({ environment, peers }).join('\n'));
    const context = { port: server.port, control, directory: installation.directory, signal };
    const measured = await measureAll(options, context);
    await writeResult(command, options, { environment, peers, measured });
  } finally {
    control.close();
    await server.stop();
  }
}

async function measureAll({ scenarios, peers, rounds, ms }, context) {
  const bar = new cliProgress.SingleBar({ format: '{bar} {value}/{total} {task}', clearOnComplete: true });
  const turns = (scenario) => scenario.rowsFor(peers).length * turnsOf(scenario, { rounds, ms });
  const total = scenarios.reduce((sum, scenario) => sum + turns(scenario), 0);
  let done = 0;
  const onRound = (task) => bar.update(done++, { task });
  const measured = [];
  for (const scenario of scenarios) {
    bar.start(total, done, { task: scenario.title });
    let results;
    try {
      results = await runScenario(scenario, peers, { ...context, rounds, ms, onRound });
    } finally {
      bar.stop();
    }
    if (results.length === 0) continue;
    const table = tableOf(scenario, results);
    console.log(terminalTable(table, process.stdout.isTTY));
    measured.push({ scenario: scenario.title, results, table });
  }
  return measured;
}

async function writeResult(command, { rounds, ms, json, markdown }, { environment, peers, measured }) {
  const settings = { rounds, ms };
  if (json !== undefined) {
    const scenarios = measured.map(({ scenario, results }) => ({ scenario, results }));
    writeFileSync(json, `${JSON.stringify({ environment, peers, settings, scenarios }, null, 2)}\n`);
    console.error(`The result is in ${json}`);
  }
  if (markdown !== undefined) {
    const tables = measured.map(({ table }) => table);
    await writeMarkdown(markdown, command, markdownOf({ environment, peers, settings, tables }));
    console.error(`The tables are in ${markdown}`);
  }
}
