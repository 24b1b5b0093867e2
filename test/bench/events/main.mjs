// What events cost: nobody listens, against the same build without them; and with metrics, against nobody listening.
import { Command } from 'commander';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { median } from '../figures.mjs';
import { whole } from '../options.mjs';
import { terminalTable } from '../report.mjs';
import { WorkerProcess } from '../worker/worker-process.mjs';

const WARM_UP = 2_000;
const PATIENCE = 60_000;

const LOADS = [
  { title: 'a free lock, 1 caller', load: 'lock', callers: 1, cache: false },
  { title: 'a free lock, 100 callers', load: 'lock', callers: 100, cache: false },
  { title: 'a hit of the first level', load: 'hit', callers: 1, cache: { l1: { max: 1_000 } } },
  { title: 'the same, by reference', load: 'hit', callers: 1, cache: { l1: { max: 1_000, serialize: false } } },
];

const WITHOUT = ['--import', new URL('./without-events.mjs', import.meta.url).href];
const SIDES = [{ execArgv: WITHOUT }, {}, { metrics: true }];

const { ms, slices, starts, only } = new Command('npm run bench:events --')
  .description('Measures what events cost while nobody listens, and what metrics cost')
  .option('--ms <number>', 'how long a slice takes', whole(100, 600_000), 300)
  .option('--slices <number>', 'slices of each side', whole(2, 1_000), 30)
  .option(
    '--starts <number>',
    'how often the processes are started anew, since no two are compiled alike',
    whole(1, 100),
    10,
  )
  .option('--only <text>', 'only loads whose title has this text in it', '')
  .parse()
  .opts();

const server = await startRedisServer();
const rows = [];
try {
  for (const { title, ...load } of LOADS.filter((each) => each.title.includes(only))) {
    console.error(title);
    rows.push([title, ...(await measure(load))]);
  }
} finally {
  await server.stop();
}
console.log(terminalTable(table(), process.stdout.isTTY));

/** The cells of a row: first by processor time, then by rate. */
async function measure(load) {
  const found = SIDES.map(() => []);
  for (let start = 0; start < starts; start++) await takeTurns(load, start, found);
  const ratio = (before, after, value) =>
    median(found[after].map((each, slice) => value(each, found[before][slice]))).toFixed(3);
  const byTime = (after, before) => before.microseconds / after.microseconds;
  const byRate = (after, before) => after.rate / before.rate;
  return [
    median(found[1].map(({ microseconds }) => microseconds)).toFixed(2),
    ...[byTime, byRate].flatMap((value) => [ratio(0, 1, value), ratio(1, 2, value)]),
  ];
}

/** The side that goes first changes from slice to slice. */
async function takeTurns(load, start, found) {
  const workers = SIDES.map(({ execArgv }) => new WorkerProcess(execArgv));
  try {
    for (const [side, worker] of workers.entries()) {
      await worker.prepare('events', { port: server.port, ...load, metrics: SIDES[side].metrics }, PATIENCE);
      await worker.run(PATIENCE, { ms: WARM_UP });
    }
    for (let slice = 0; slice < Math.ceil(slices / starts); slice++) {
      for (let turn = 0; turn < SIDES.length; turn++) {
        const side = (start + slice + turn) % SIDES.length;
        found[side].push(await workers[side].run(PATIENCE, { ms }));
      }
    }
  } finally {
    await Promise.all(workers.map((worker) => worker.end()));
  }
}

function table() {
  return {
    title: 'Events',
    note: `Medians of ${slices} slices of ${ms} ms of each, in turn. "silent" is nobody listening against the same build without events,\n"metrics" is RedisLockMetricsModule against nobody listening. Above 1 is better; µs is the processor time of an operation in silence.`,
    columns: ['', 'µs', 'silent, processor', 'metrics, processor', 'silent, rate', 'metrics, rate'],
    rows,
    notes: [],
  };
}
