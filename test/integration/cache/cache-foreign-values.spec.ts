import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { memoryCacheStore } from '../../../lib/backends/memory/memory-cache-store.js';
import { openCache } from '../../support/cache-instance.js';
import { scriptedCache } from '../../support/scripted-cache.js';

let server: RedisServer;
let redis: Redis;

beforeAll(async () => {
  server = await startRedisServer();
  redis = new Redis(server.url);
});
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

it('what is under the key of a value and is none costs each read a load and a few commands', async () => {
  await using app = await openCache({ redis: server.url, cache: {} });
  const keys = Array.from({ length: 100 }, (_, index) => `foreign:${index}`);
  for (const key of keys) await redis.hset(`cache:${key}`, 'field', 'value');
  const commands = async () => Number(/total_commands_processed:(\d+)/.exec(await redis.info('stats'))![1]);
  const before = await commands();
  const read = (key: string) => app.cache.getOrSet(key, () => `loaded ${key}`);
  expect(await Promise.all(keys.map(read))).toEqual(keys.map((key) => `loaded ${key}`));
  expect((await commands()) - before).toBeLessThan(20 * keys.length);
  expect(app.logger.matching(/is not a value of the cache/).length).toBeGreaterThan(0);
  for (const key of keys) expect(await redis.type(`cache:${key}`)).toBe('hash');
});

it('neither does a replica that lags behind for ever keep a read asking', async () => {
  const store = memoryCacheStore();
  using scripted = scriptedCache({}, store);
  const { read, lease } = store;
  await scripted.cache.set('k', 'old');
  const old = await read.call(store, 'k');
  await scripted.cache.set('k', 'new', { tags: ['t'] });
  let leases = 0;
  store.lease = (request) => {
    leases += 1;
    return lease.call(store, request);
  };
  for (const replica of [null, old]) {
    store.read = async () => replica;
    leases = 0;
    expect(await scripted.cache.getOrSet('k', () => 'loaded', { tags: ['t'] })).toBe('loaded');
    expect(leases).toBeLessThanOrEqual(6);
  }
});
