import { jest } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';
import { Redis } from 'ioredis';

let server: RedisServer;
let admin: Redis;

beforeAll(async () => {
  server = await startRedisServer();
  admin = new Redis(server.url);
});
afterAll(async () => {
  admin.disconnect();
  await server.stop();
});

describe.each([
  ['on Redis', () => openCache({ redis: server.url, prefix: 'plain' })],
  ['on Redis, with a first level', () => openCache({ redis: server.url, prefix: 'fronted', cache: { l1: {} } })],
  ['in memory', () => openCache({ redis: server.url, cache: { memory: {} } })],
])('the time to live of a value, %s', (_, open) => {
  it.each([
    ['nullTtl', { ttl: '5m', refreshAhead: 0.8 }, () => null],
    ['a shorter setTtl', { ttl: '5m', refreshAhead: 0.8 }, ({ setTtl }: Context): number => (setTtl('30s'), 1)],
    [
      'a setTtl with tags',
      { ttl: '5m', refreshAhead: 0.8, tags: ['a'] },
      ({ setTtl }: Context): number => (setTtl('30s'), 1),
    ],
  ] as const)(
    'of %s counts for refreshAhead, so that a fresh value is not loaded again',
    async (what, options, load) => {
      await using instance = await open();
      const loader = jest.fn<(context: Context) => unknown>(load);
      for (let time = 0; time < 5; time++) {
        await instance.cache.getOrSet(`ahead ${what}`, loader, options);
        await sleep(20);
      }
      expect(loader).toHaveBeenCalledTimes(1);
    },
  );

  it('that setTtl made longer counts for refreshAhead', async () => {
    await using instance = await open();
    const options = { ttl: 100, refreshAhead: 0.01, jitter: 0 } as const;
    const loader = jest.fn(({ setTtl }: Context): number => (setTtl('20s'), 1));
    const read = () => instance.cache.getOrSet('longer', loader, options);
    await read();
    await sleep(20);
    await read();
    expect(loader).toHaveBeenCalledTimes(1);
    await eventually(async () => (await read()) === 1 && loader.mock.calls.length === 2);
  });

  it('is what expire says, also where the value is kept stale', async () => {
    await using instance = await open();
    const { cache } = instance;
    await cache.set('e', { a: 1 }, { ttl: 200, jitter: 0, staleTtl: '1m' });
    expect(await cache.expire('e', '1h')).toBe(true);
    await sleep(300);
    expect(await cache.get('e')).toEqual({ a: 1 });
    expect(await cache.has('e')).toBe(true);
    const { freshFor, keptFor } = (await cache.inspect('e'))!;
    expect(freshFor).toBeGreaterThan(3_590_000);
    expect(keptFor - freshFor).toBeGreaterThan(59_000);
    expect(keptFor - freshFor).toBeLessThan(61_000);
    expect(await cache.expire('e', 20)).toBe(true);
    await eventually(async () => (await cache.get('e')) === undefined);
  });

  it('leaves a value stale that was expired softly', async () => {
    await using instance = await open();
    const { cache } = instance;
    await cache.set('soft', { a: 1 }, { ttl: '1m' });
    await cache.expire('soft', { soft: true });
    expect(await cache.expire('soft', '1h')).toBe(true);
    expect(await cache.get('soft')).toBeUndefined();
  });
});

describe.each([
  ['setTtl', ({ setTtl }: Context) => (setTtl('1h'), 'v'), async () => {}],
  ['expire', () => 'v', (cache: Cache) => cache.expire('tagged', '1h')],
  ['expire of a value that is kept stale', () => 'v', (cache: Cache) => cache.expire('tagged', '1h'), '10m'],
] as const)('a value that lives longer by %s', (what, load, change, staleTtl: '10m' | 0 = 0) => {
  it('has tags that Redis keeps for longer', async () => {
    const prefix = `tags ${what}`;
    await using instance = await openCache({ redis: server.url, prefix });
    const { cache } = instance;
    const options = { ttl: '10s', jitter: 0, staleTtl, tags: ['of options'] } as const;
    await cache.getOrSet('tagged', (context) => (context.setTags(['named']), load(context)), options);
    await eventually(() => cache.has('tagged'));
    await change(cache);
    for (const tag of ['of options', 'named']) {
      expect(await admin.pttl(`${prefix}:cache-tag:${tag}`)).toBeGreaterThan(
        await admin.pttl(`${prefix}:cache:tagged`),
      );
    }
    await cache.deleteByTag('of options');
    expect(await cache.get('tagged')).toBeUndefined();
  });
});

type Cache = Awaited<ReturnType<typeof openCache>>['cache'];
type Context = { readonly setTtl: (ttl: '30s' | '20s' | '1h') => void };
