import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { CacheService } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';
import { openCache, type CacheInstance } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { startRedisCluster } from '../../../support/servers/redis-cluster.js';

let server: RedisServer;
let redis: Redis;
let other: CacheInstance;

beforeAll(async () => {
  server = await startRedisServer();
  redis = new Redis(server.url);
  other = await openCache({ redis: server.url, cache: {} });
});
afterAll(async () => {
  await other.close();
  redis.disconnect();
  await server.stop();
});

const STRONG = { consistency: 'strong', onRedisError: 'throw' } as const;
const writes: Record<string, (cache: CacheService) => Promise<unknown>> = {
  set: (cache) => cache.set('row', 'v1'),
  'set with a tag': (cache) => cache.set('row', 'v1', { tags: ['rows'] }),
  setIfAbsent: (cache) => cache.setIfAbsent('row', 'v1'),
  mset: (cache) => cache.mset({ row: 'v1' }),
};

it.each(Object.keys(writes))('what the network delivers after its call has ended stores nothing: %s', async (name) => {
  const proxy = await FaultProxy.start(server.port);
  const app = await openCache({ redis: { host: '127.0.0.1', port: proxy.port }, cache: {} });
  await app.cache.set('before', 1, { tags: ['rows'] });
  proxy.hold();
  await writes[name]!(app.cache);
  await other.cache.invalidate('row', { onRedisError: 'throw' });
  // What had been sent is delivered; what is said to it is lost, and nothing that the application does later arrives.
  proxy.heal();
  proxy.silence();
  const asked = async () => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1]);
  await eventually(async () => (await redis.exists('cache:row')) === 1, { within: 150 }).catch(() => asked());
  expect(await other.cache.getOrSet('row', () => 'v2', STRONG)).toBe('v2');
  await app.close();
  await proxy.stop();
  await redis.flushall();
});

it('a call that failed early does not end before it is sure that nothing more is stored', async () => {
  const proxy = await FaultProxy.start(server.port);
  const cache = { breaker: { errors: 1, open: 5_000 }, commandTimeout: 300 };
  const app = await openCache({ redis: { host: '127.0.0.1', port: proxy.port }, cache });
  await app.cache.set('before', 1);
  proxy.hold();
  const reading = app.cache.get('before');
  await sleep(150);
  const begun = performance.now();
  await app.cache.set('row', 'v1');
  expect(performance.now() - begun).toBeGreaterThan(280);
  await reading;
  proxy.heal();
  await app.close();
  await proxy.stop();
});

it('a set is stored on each node of a Cluster', async () => {
  const keys = Array.from({ length: 30 }, (_, index) => `k:${index}`);
  const cluster = await startRedisCluster();
  const client = cluster.client();
  const app = await openCache({ redis: client, cache: { commandTimeout: '2s' } });
  await Promise.all(keys.map((key) => app.cache.set(key, key, { onRedisError: 'throw' })));
  expect(await app.cache.mget(keys)).toEqual(keys);
  await app.close();
  client.disconnect();
  await cluster.stop();
});

it('a set is stored also where the clock of the server was set forward since it was read', async () => {
  const client = new Redis(server.url);
  await using _ = { [Symbol.asyncDispose]: async () => client.disconnect() };
  let readings = 0;
  // What is left of a reading from before: all later ones are right.
  const time = async (): Promise<number[]> => {
    readings += 1;
    const [seconds, micros] = await redis.time();
    return [Number(seconds) - (readings === 1 ? 60 : 0), Number(micros)];
  };
  await using app = await openCache({ redis: Object.assign(client, { time }), cache: { commandTimeout: '2s' } });
  for (const value of ['first', 'second']) {
    await app.cache.set('forward', value, { onRedisError: 'throw' });
    expect(await app.cache.get('forward')).toBe(value);
  }
  expect(readings).toBe(2);
});

it('a set under a barrier stores nothing', async () => {
  await other.cache.set('row', 'before');
  await other.cache.invalidate('row', { barrier: '1m' });
  await other.cache.set('row', 'v1', { onRedisError: 'throw' });
  expect(await other.cache.setIfAbsent('row', 'v1')).toBe(false);
  expect(await redis.exists('cache:row')).toBe(0);
  await redis.del('barrier:{cache:row}');
  await other.cache.set('row', 'v2');
  expect(await other.cache.get('row')).toBe('v2');
});
