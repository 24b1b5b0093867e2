// What a rate limit costs: this library, rate-limiter-flexible and @nest-lab/throttler-storage-redis in one process.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { NestFactory } from '@nestjs/core';
import Table from 'cli-table3';
import { Command } from 'commander';
import { RateLimiter, RedisLockModule } from 'nest-redis-lock';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { median, waitPercentiles, WaitRecorder } from '../figures.mjs';
import { positive } from '../options.mjs';
import { PeerPackages } from '../peers/installation.mjs';

/** High enough that no call is denied: a denied call costs less. */
const LIMIT = 1_000_000;

class Root {}

/**
 * Each limiter is a function of a key, which takes one unit on the server; those of peers come from `directory`, where
 * they are installed.
 */
async function openLimiters(port, directory) {
  const load = createRequire(join(directory, 'package.json'));
  const { Redis } = load('ioredis');
  const { RateLimiterRedis } = load('rate-limiter-flexible');
  const { ThrottlerStorageRedisService } = load('@nest-lab/throttler-storage-redis');
  const redis = { host: '127.0.0.1', port };
  const module = { module: Root, imports: [RedisLockModule.forRoot({ redis })] };
  const app = await NestFactory.createApplicationContext(module, { logger: ['error'] });
  const limiter = app.get(RateLimiter);
  const storage = limiter.throttlerStorage();
  const clients = [new Redis(redis), new Redis(redis)];
  const flexible = new RateLimiterRedis({ storeClient: clients[0], points: LIMIT, duration: 10 });
  const nestLab = new ThrottlerStorageRedisService(clients[1]);
  const options = { limit: LIMIT, per: '10s' };
  return {
    limiters: {
      ours: (key) => limiter.take(key, options),
      'ours, localShare 50': (key) => limiter.take(key, { ...options, localShare: 50 }),
      'ours, as throttler storage': (key) => storage.increment(key, 10_000, LIMIT, 10_000, 'default'),
      'rate-limiter-flexible': (key) => flexible.consume(key),
      '@nest-lab/throttler-storage-redis': (key) => nestLab.increment(key, 10_000, LIMIT, 10_000, 'default'),
    },
    close: async () => {
      await app.close();
      for (const client of clients) client.disconnect();
    },
  };
}

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
