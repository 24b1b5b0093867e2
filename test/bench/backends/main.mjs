// What locks cost on other stores than a single Redis, ours and those of other libraries.
import { Command, InvalidArgumentError, Option } from 'commander';
import { countViolations, firstLine, jainIndex, median, waitPercentiles } from '../figures.mjs';
import { PeerPackages } from '../peers/installation.mjs';
import { rounded, terminalTable } from '../report.mjs';
import { WorkerTeam } from '../worker/worker-process.mjs';

/**
 * The module of a store exports `start()`, which starts the servers and answers `{ server, stop }`; `peers`, each a
 * function of `{ server, modules }` that answers `run(key, body)`; `versions`, the packages of the peers; and
 * `scenarios`, each with `title`, `processes`, `callers`, `keys`, the peers `among` which it is measured, and
 * `targets`: by peer, how many times its cycles ours should reach.
 */
const STORES = ['redlock', 'postgres', 'mysql', 'etcd', 'zookeeper'];
const OURS = 'ours';
const PATIENCE = 40_000;

const {
  only,
  scenario: words,
  rounds,
  seconds,
  directory,
} = new Command('npm run bench:backends --')
  .description('Measures the locks of this library and of its peers on other stores, in turn, on servers of their own')
  .addOption(new Option('--only <store>', 'the one store to measure').choices(STORES))
  .option('--scenario <words>', 'only the scenarios with these words in their title', '')
  .option('--rounds <number>', 'how often each peer has its turn', positive, 5)
  .option('--seconds <number>', 'how long one turn takes', positive, 1)
  .option('--directory <folder>', 'where the peers are installed')
  .parse()
  .opts();

for (const store of only ? [only] : STORES) await benchStore(store);

async function benchStore(store) {
  const { start, versions, scenarios } = await import(`./${store}.mjs`);
  const packages = new PeerPackages(versions);
  const folder = directory ?? packages.defaultDirectory;
  await packages.install([{ packages: [store] }], folder, AbortSignal.timeout(300_000));
  const { server, stop } = await start();
  try {
    for (const scenario of scenarios.filter(({ title }) => title.includes(words))) {
      const results = await measure(scenario, { store, server, directory: folder });
      console.log(terminalTable(tableOf(store, scenario, results), process.stdout.isTTY));
    }
  } finally {
    await stop();
  }
}

/**
 * Lets the peers have short turns, one after the other, so that all meet the same state of the machine. Their processes
 * go on from turn to turn; the first turn of each is not counted.
 */
async function measure({ among, processes, callers, keys }, settings) {
  const load = { ...settings, callers, keys, ms: seconds * 1_000, holds: [] };
  const results = among.map((name) => ({
    name,
    team: new WorkerTeam(processes, PATIENCE),
    rounds: [],
    failure: undefined,
  }));
  try {
    for (const { team, name } of results) {
      await team.prepare(
        'backends',
        Array.from({ length: processes }, () => ({ ...load, peer: name })),
      );
    }
    for (let round = 0; round <= rounds; round++) {
      for (const result of results) if (result.failure === undefined) await takeTurn(result, round > 0);
    }
    return results;
  } finally {
    await Promise.all(results.map(({ team }) => team.end()));
  }
}

async function takeTurn(result, counts) {
  try {
    const results = await result.team.run();
    if (counts) result.rounds.push(figures(results));
  } catch (error) {
    result.failure = firstLine(error);
    await result.team.end();
  }
}

function figures(results) {
  const served = results.flatMap((each) => each.served);
  const cycles = served.reduce((total, count) => total + count, 0);
  return {
    rate: (cycles / Math.max(...results.map(({ elapsed }) => elapsed))) * 1_000,
    wait: waitPercentiles(results.map(({ waits }) => waits)),
    fairness: jainIndex(served),
    errors: results.reduce((total, { errors }) => total + errors, 0),
    violations: countViolations(results.map(({ stays }) => stays)),
    firstError: results.find(({ firstError }) => firstError !== undefined)?.firstError,
  };
}

function tableOf(store, { title, targets }, results) {
  const rateOf = ({ rounds: measured }) => median(measured.map(({ rate }) => rate));
  const ours = results.find(({ name }) => name === OURS);
  return {
    title: `${store}: ${title}`,
    columns: ['', 'cycles/s', 'ours ×', 'target', 'p50 ms', 'p99 ms', 'Jain callers', 'errors', 'violations'],
    rows: results.map((result) => {
      const { name, rounds: measured } = result;
      const target = targets[name] === undefined ? '' : `≥ ${targets[name]}`;
      if (measured.length === 0) return [name, 'failed', '', target];
      const middle = (figureOf) => median(measured.map(figureOf));
      const sum = (figureOf) => measured.reduce((total, round) => total + figureOf(round), 0);
      return [
        name,
        rounded(rateOf(result)),
        ours.rounds.length > 0 && result !== ours ? (rateOf(ours) / rateOf(result)).toFixed(2) : '',
        target,
        rounded(middle(({ wait }) => wait.p50)),
        rounded(middle(({ wait }) => wait.p99)),
        middle(({ fairness }) => fairness).toFixed(3),
        String(sum(({ errors }) => errors)),
        String(sum(({ violations }) => violations)),
      ];
    }),
    notes: results.flatMap(({ name, rounds: measured, failure }) => {
      const error = measured.find(({ firstError }) => firstError !== undefined)?.firstError;
      return [failure && `${name} failed: ${failure}`, error && `${name}: ${error}`].filter(Boolean);
    }),
  };
}

function positive(value) {
  if (/^\d+(\.\d+)?$/.test(value) && Number(value) > 0) return Number(value);
  throw new InvalidArgumentError('Give a number above 0.');
}
