import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import cliProgress from 'cli-progress';
import { startRedisServer } from '../../dist-sample/servers/redis-server.js';
import { firstLine } from './figures.mjs';
import { markdownOf, writeMarkdown } from './markdown.mjs';
import { readOptions } from './options.mjs';
import { RedisControl } from './redis-control.mjs';
import { environmentOf, factLines, terminalTable } from './report.mjs';
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

/** How often each row of a scenario has its turn: once a round unless the scenario says otherwise. */
function turnsOf(scenario, { rounds, ms }) {
  return scenario.turns?.({ rounds, ms }) ?? rounds;
}

/**
 * Runs a scenario: rounds in which every row has its turn (A B C, A B C), so that a slow spell of the machine hits all.
 * A row whose round fails takes no part in further rounds.
 *
 * Each turn begins on an empty server, unless the scenario has `open`: what that prepares for a row, in its first turn,
 * is given to all of its turns, and ended after the last.
 */
async function runScenario(scenario, peers, context) {
  const results = scenario.rowsFor(peers).map((name) => ({ name, rounds: [] }));
  const opened = new Map();
  await context.control.empty();
  try {
    for (let turn = 1; turn <= turnsOf(scenario, context); turn++) {
      for (const result of results) {
        context.signal.throwIfAborted();
        context.onRound(`${scenario.title}: ${result.name}`);
        if (result.failure !== undefined) continue;
        try {
          result.rounds.push(await takeTurn(scenario, result.name, context, opened));
        } catch (error) {
          context.signal.throwIfAborted();
          result.failure = firstLine(error);
        }
      }
    }
  } finally {
    await Promise.all([...opened.values()].map((each) => each.end()));
  }
  return results;
}

async function takeTurn(scenario, name, context, opened) {
  if (!scenario.open) {
    await context.control.empty();
    return scenario.round(name, context);
  }
  if (!opened.has(name)) opened.set(name, await scenario.open(name, context));
  return scenario.round(name, { ...context, opened: opened.get(name) });
}

function tableOf(scenario, results) {
  const { columns, rows, notes } = scenario.table(results);
  return {
    title: scenario.title,
    note: scenario.note,
    columns,
    rows: rows.map((cells, index) => (results[index].rounds.length > 0 ? cells : [results[index].name, 'failed'])),
    notes: [...notes, ...results.filter(({ failure }) => failure !== undefined).map(failureNote)],
  };
}

function failureNote({ name, rounds, failure }) {
  return `${name} failed in round ${rounds.length + 1}: ${failure}`;
}

const require = createRequire(import.meta.url);

/** What each peer is, with what it is built on, as in `murlock 4.4.0 on redis 4.7.1`. */
function peerVersions(peers, names, installation) {
  const versionOf = (peer) => (peer.own ? ownVersion() : describe(peer, installation));
  return Object.fromEntries(names.map((name) => [name, versionOf(peers[name])]));
}

function describe({ packages: [first, ...basis] }, installation) {
  if (first === undefined) return 'in memory';
  const exact = (package_) => `${package_} ${installation.versionOf(package_, first) ?? '(not installed)'}`;
  return [exact(first), ...basis.map(exact)].join(', ');
}

function ownVersion() {
  const packages = ['nest-redis-lock', 'ioredis', '@nestjs/core'];
  return packages.map((package_) => `${package_} ${require(`${package_}/package.json`).version}`).join(', ');
}
