import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';
import { openCache } from '../../../support/cache-instance.js';
import { Gate } from '../../../support/gate.js';

let server: RedisServer;
let plain: Redis;

beforeAll(async () => {
  server = await startRedisServer();
  plain = new Redis(server.url);
});
afterAll(async () => {
  plain.disconnect();
  await server.stop();
});

const HOUR = 3_600_000;

it('tags of no value are remembered briefly, other tags and the last invalidation for long', async () => {
  await using instance = await openCache({ redis: server.url });
  const { cache } = instance;
  await cache.set('k', 'v', { tags: ['used'] });
  await cache.deleteByTag(['used', 'unused']);
  await cache.expireByTag('soft');
  const left = (key: string) => plain.pttl(key);
  for (const tag of ['unused', 'soft']) {
    expect(await left(`cache-tag:${tag}`)).toBeGreaterThan(HOUR / 12);
    expect(await left(`cache-tag:${tag}`)).toBeLessThan(HOUR);
  }
  expect(await left('cache-tag:used')).toBeGreaterThan(23 * HOUR);
  expect(await left('cache-tags')).toBeGreaterThan(23 * HOUR);
});

it('a load whose tag was deleted meanwhile stores nothing, also where that is forgotten', async () => {
  await using instance = await openCache({ redis: server.url });
  const { cache } = instance;
  const [begun, gate] = [new Gate(), new Gate()];
  const slow = cache.getOrSet('slow', async ({ setTags }) => {
    begun.open();
    await gate.opened;
    setTags(['forgotten']);
    return 'read before';
  });
  await begun.opened;
  await cache.deleteByTag('forgotten');
  expect(await plain.del('cache-tag:forgotten')).toBe(1);
  gate.open();
  expect(await slow).toBe('read before');
  expect(await cache.has('slow')).toBe(false);
});
