// What a rate limit costs: this library, rate-limiter-flexible and @nest-lab/throttler-storage-redis in one process.
import { setImmediate as turn } from 'node:timers/promises';
import { Command } from 'commander';
import Table from 'cli-table3';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { median } from '../median.mjs';
import { positive } from '../options.mjs';
import { PeerPackages } from '../peers/installation.mjs';
import { WaitRecorder, waitPercentiles } from '../waits.mjs';
import { openLimiters } from './limiters.mjs';

const PEERS = ['rate-limiter-flexible', '@nest-lab/throttler-storage-redis'];
const SCENARIOS = [
  { title: '100 callers, 1,000 keys', callers: 100, keys: 1_000 },
  { title: '100 callers, one key', callers: 100, keys: 1 },
  { title: 'one caller', callers: 1, keys: 1_000 },
];

const { rounds, ms, directory } = new Command('npm run bench:rate-limit --')
  .description('Measures calls that take one unit, in turns of each limiter, on a Redis server of its own')
  .option('--rounds <number>', 'how often each limiter has its turn', positive, 15)
  .option('--ms <number>', 'how long one turn takes', positive, 300)
  .option('--directory <folder>', 'where the peers are installed')
  .parse()
  .opts();

const packages = new PeerPackages(new URL('packages.json', import.meta.url));
const folder = directory ?? packages.defaultDirectory;
await packages.install([{ packages: PEERS }], folder, AbortSignal.timeout(300_000));
const server = await startRedisServer();
const { limiters, close } = await openLimiters(server.port, folder);
try {
  for (const scenario of SCENARIOS) console.log(tableOf(scenario, await measure(scenario)).toString());
} finally {
  await close();
  await server.stop();
}

/** Short turns, one after the other, so that all meet the same state of the machine. The first does not count. */
async function measure({ callers, keys }) {
  const results = Object.keys(limiters).map((name) => ({ name, rates: [], waits: new WaitRecorder() }));
  for (let round = 0; round <= rounds; round++) {
    for (const { name, rates, waits } of results) {
      const rate = await takeTurn(limiters[name], { callers, keys }, round > 0 ? waits : new WaitRecorder());
      if (round > 0) rates.push(rate);
    }
  }
  return results;
}

/** Calls per second. */
async function takeTurn(take, { callers, keys }, waits) {
  const begin = performance.now();
  const end = begin + ms;
  let done = 0;
  const call = async (_, caller) => {
    for (let round = 0; performance.now() < end; round++) {
      const asked = process.hrtime.bigint();
      await take(`key:${(caller * 7_919 + round * 31) % keys}`);
      // In ns, so that the percentiles are in µs.
      waits.record(Number(process.hrtime.bigint() - asked));
      done += 1;
      // A local share answers without ever leaving the queue of microtasks.
      if (round % 16 === 0) await turn();
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  return (done / (performance.now() - begin)) * 1_000;
}

function tableOf({ title }, results) {
  const ofPeers = results.filter(({ name }) => PEERS.includes(name));
  const table = new Table({
    head: [title, 'calls/s', 'p50 µs', 'p99 µs', ...PEERS.map((peer) => `times ${peer}`)],
    colAligns: ['left', ...Array.from({ length: 3 + PEERS.length }, () => 'right')],
    style: { head: [], border: [] },
  });
  for (const { name, rates, waits } of results) {
    const { p50, p99 } = waitPercentiles([waits.encoded()]);
    // Of each round, so that a slow spell of the machine counts for both.
    const times = ofPeers.map((peer) => median(rates.map((rate, round) => rate / peer.rates[round])).toFixed(2));
    table.push([name, Math.round(median(rates)), Math.round(p50), Math.round(p99), ...times]);
  }
  return table;
}
