// What each operation costs where Redis is on another machine: multiples of a PING, and of bare commands, through a
// proxy that delays both directions. Only the figures of one run can be compared.
import Table from 'cli-table3';
import { Command } from 'commander';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { median } from '../figures.mjs';
import { positive, whole } from '../options.mjs';
import { connectApplication } from '../worker/lock-service.mjs';
import { BARE_CACHE, BARE_LOCK, PING, rowsOf } from './rows.mjs';
import { SlowNetwork } from './slow-network.mjs';

/** Rounds that do not count: code is compiled, scripts are loaded, and the cache learns what is read. */
const WARM_UP = 100;
/** How many calls at once each operation has in such a round, as in a service under load: compilers want thousands. */
const AT_ONCE = 50;

const { rounds, warmUp, delay, json } = new Command('npm run bench:network --')
  .description('Measures round trips through a proxy that delays both directions, on a Redis server of its own')
  .option('--rounds <number>', 'how often each operation has its turn', positive, 100)
  .option('--warm-up <number>', 'rounds before those, which do not count', positive, WARM_UP)
  .option('--delay <µs>', 'how long each direction takes', whole(0, 1_000_000), 1_200)
  .option('--json', 'print JSON instead of a table')
  .showHelpAfterError('(--help shows the options)')
  .parse()
  .opts();

const server = await startRedisServer();
const network = await SlowNetwork.start(server.port, delay / 1_000);
const client = new Redis({ host: '127.0.0.1', port: network.port });
const applications = [];
let results;
try {
  for (let count = 0; count < 2; count++) applications.push(await connectApplication(network.port));
  results = await measure(rowsOf(client, ...applications));
} finally {
  await Promise.all(applications.map((application) => application.close()));
  client.disconnect();
  network.stop();
  await server.stop();
}
const figures = results.map((row) => figuresOf(row, results));
console.log(json ? JSON.stringify(figures) : table(figures).toString());

/** Every operation has its turn in each round, right after a PING, so that a slow spell of the machine hits both. */
async function measure(rows) {
  const measured = rows.map(({ title }) => ({ title, times: [], pings: [], writes: [], commands: [] }));
  for (let round = 1; round <= warmUp; round++) for (const row of rows) await warm(row, round);
  for (let round = 0; round < rounds; round++) {
    for (const [index, row] of rows.entries()) {
      const turn = await takeTurn(row, round);
      for (const [figure, value] of Object.entries(turn)) measured[index][figure].push(value);
    }
  }
  return measured;
}

/** The calls have numbers of their own. */
async function warm({ prepare, call }, round) {
  const one = async (_, index) => {
    const number = -round * AT_ONCE - index;
    await prepare?.(number);
    await call(number);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
}

async function takeTurn({ prepare, call }, round) {
  await prepare?.(round);
  await network.settled();
  const pings = await timeOf(() => client.ping());
  const before = await network.settled();
  const times = await timeOf(() => call(round));
  const after = await network.settled();
  return { times, pings, writes: after.writes - before.writes, commands: after.commands - before.commands };
}

/** In ms. */
async function timeOf(call) {
  const begin = performance.now();
  await call();
  return performance.now() - begin;
}

function figuresOf({ title, times, pings, writes, commands }, all) {
  const timesOf = (other) => all.find((row) => row.title === other).times;
  const ratio = (reference) => median(times.map((time, round) => time / reference[round]));
  return {
    title,
    pings: ratio(pings),
    bareLocks: ratio(timesOf(BARE_LOCK)),
    bareReads: ratio(timesOf(BARE_CACHE)),
    writes: median(writes),
    commands: median(commands),
  };
}

function table(rows) {
  const columns = [`× ${PING}`, '× SET NX\n+ EVALSHA', '× GET\n+ SET', 'writes', 'commands'];
  const cells = new Table({
    head: [`${delay} µs a direction, ${rounds} rounds`, ...columns],
    colAligns: ['left', ...columns.map(() => 'right')],
    style: { head: [], border: [], compact: true },
  });
  for (const { title, pings, bareLocks, bareReads, writes, commands } of rows) {
    cells.push([title, ...[pings, bareLocks, bareReads].map((times) => times.toFixed(2)), writes, commands]);
  }
  return cells;
}
