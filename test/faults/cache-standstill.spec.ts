import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { openCache } from '../support/cache-instance.js';

let server: RedisServer;

beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

it.each([
  [100, 300],
  [10_000, 300],
  [10_000, 1_000],
])(
  'reads of values of %i bytes load nothing for it that this process stood still for %i ms',
  async (size, standstill) => {
    await using app = await openCache({ redis: server.url, cache: {} });
    const { cache } = app;
    const keys = Array.from({ length: 1_000 }, (_, index) => `${size}:${index}`);
    const text = 'x'.repeat(size);
    // One after the other, so that none comes too late on a busy machine.
    for (const key of keys) await cache.set(key, { text }, { onRedisError: 'throw' });
    await cache.get(keys[0]!);
    let loads = 0;
    const reading = keys.map((key) => cache.getOrSet(key, () => (loads += 1)));
    await new Promise((resolve) => setImmediate(resolve));
    for (const until = performance.now() + standstill; performance.now() < until;);
    await Promise.all(reading);
    expect(loads).toBe(0);
    expect(cache.stats()).toMatchObject({ breakerOpened: 0, redisErrors: 0 });
  },
);
