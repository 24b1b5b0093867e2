// What it costs other clients when somebody pages through all locks: cycles of a free lock, in turn without a list,
// beside one on another Redis of the same machine, and amid one. Fails where a list misses a lock that is held all the
// time.
import Table from 'cli-table3';
import { Command } from 'commander';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { median, waitPercentiles } from '../figures.mjs';
import { positive } from '../options.mjs';
import { WorkerProcess } from '../worker/worker-process.mjs';

const PATIENCE = 600_000;

const { rounds, ms, locks, callers, pause, limit } = new Command('npm run bench:list --')
  .description('Measures what a list of many held locks costs other clients of Redis')
  .option('--rounds <number>', 'how often each has its turn', positive, 7)
  .option('--ms <number>', 'how long one turn takes', positive, 4_000)
  .option('--locks <number>', 'locks that are held', positive, 100_000)
  .option('--callers <number>', 'callers of the other process', positive, 8)
  .option('--pause <ms>', 'pause of a caller between two cycles', positive, 2)
  .option('--limit <number>', 'locks on a page', positive, 100)
  .parse()
  .opts();

const servers = await Promise.all([startRedisServer(), startRedisServer()]);
const workers = [];
try {
  const [here, elsewhere] = servers.map(({ port }) => port);
  const holder = await start({ role: 'holder', port: here, count: locks });
  await start({ role: 'holder', port: elsewhere, count: locks });
  const clients = await start({ role: 'clients', port: here, callers, pause });
  const listers = {
    'without a list': undefined,
    'a list on another Redis': await start({ role: 'lister', port: elsewhere, limit }),
    'amid a list': await start({ role: 'lister', port: here, limit }),
  };
  const turns = new Map(Object.keys(listers).map((title) => [title, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [title, lister] of Object.entries(listers)) {
      const [result] = await Promise.all([clients.run(PATIENCE, { ms }), lister?.run(PATIENCE, { ms })]);
      turns.get(title).push(figuresOf(result));
    }
  }
  const { pages, found, elapsed } = await listers['amid a list'].run(PATIENCE, { end: true });
  const held = await holder.run(PATIENCE);
  const rate = Math.round((found / elapsed) * 1_000);
  console.log(table(turns).toString());
  console.log(
    `One list: ${found} of ${held} locks on ${pages} pages in ${(elapsed / 1_000).toFixed(1)} s, ${rate} a second`,
  );
  process.exitCode = found === held ? 0 : 1;
} finally {
  await Promise.all(workers.map((worker) => worker.end()));
  await Promise.all(servers.map((server) => server.stop()));
}

async function start(settings) {
  const worker = new WorkerProcess();
  workers.push(worker);
  await worker.prepare('list', settings, PATIENCE);
  return worker;
}

function figuresOf({ cycles, waits }) {
  return { rate: (cycles / ms) * 1_000, ...waitPercentiles([waits]) };
}

/** Beside a list on another Redis, what is left of the difference is what a list costs at Redis, not on the machine. */
function table(turns) {
  const columns = ['cycles/s', 'p50 ms', 'p99 ms', 'max ms', '× p50', '× p99', 'least p99 ms', '× least p99'];
  const cells = new Table({
    head: [`${callers} callers, ${locks} locks held`, ...columns],
    colAligns: ['left', ...columns.map(() => 'right')],
    style: { head: [], border: [] },
  });
  const without = turns.get('without a list');
  for (const [title, own] of turns) {
    const middle = (figureOf) => median(own.map(figureOf));
    // Of each round, so that a slow spell of the machine counts for all.
    const times = (figureOf) => median(own.map((turn, round) => figureOf(turn) / figureOf(without[round]))).toFixed(2);
    cells.push([
      title,
      Math.round(middle(({ rate }) => rate)),
      middle(({ p50 }) => p50).toFixed(2),
      middle(({ p99 }) => p99).toFixed(2),
      middle(({ max }) => max).toFixed(1),
      times(({ p50 }) => p50),
      times(({ p99 }) => p99),
      leastOf(own).toFixed(2),
      (leastOf(own) / leastOf(without)).toFixed(2),
    ]);
  }
  return cells;
}

/** The p99 of the quietest turn: what other programs of the machine do only adds to it. */
function leastOf(turns) {
  return Math.min(...turns.map(({ p99 }) => p99));
}
