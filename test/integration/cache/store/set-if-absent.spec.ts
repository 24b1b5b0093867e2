import type { CacheOptions } from 'nest-redis-lock';
import { type CacheInstance, openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

const json = (name: string) => ({
  name,
  serialize: (value: unknown) => JSON.stringify(value),
  deserialize: (data: Buffer) => JSON.parse(data.toString()) as unknown,
});

describe.each<[string, CacheOptions]>([
  ['in Redis', {}],
  ['in memory', { memory: {} }],
])('%s, setIfAbsent', (_, options) => {
  let instance: CacheInstance;
  let key: string;
  let keys = 0;

  beforeEach(async () => {
    key = `key:${++keys}`;
    instance = await openCache({ redis: server.url, cache: options });
  });
  afterEach(() => instance.close());

  const ways: readonly [string, () => Promise<unknown>][] = [
    [
      'was deleted by its tag',
      async () => {
        await instance.cache.set(key, 'old', { tags: [key] });
        await instance.cache.deleteByTag(key);
      },
    ],
    [
      'was expired softly',
      async () => {
        await instance.cache.set(key, 'old', { staleTtl: '1h' });
        await instance.cache.expire(key, { soft: true });
      },
    ],
    [
      'is stale by its time',
      async () => {
        await instance.cache.set(key, 'old', { ttl: 1, staleTtl: '1h' });
        await eventually(async () => !(await instance.cache.has(key)));
      },
    ],
  ];

  it.each(ways)('stores in place of a value that %s: get finds none either', async (_way, outdate) => {
    await outdate();
    expect(await instance.cache.get(key)).toBeUndefined();
    expect(await instance.cache.setIfAbsent(key, 'new')).toBe(true);
    expect(await instance.cache.setIfAbsent(key, 'late')).toBe(false);
    expect(await instance.cache.get(key)).toBe('new');
  });

  it('lets one of several callers store in place of such a value', async () => {
    await ways[0]?.[1]();
    const callers = Array.from({ length: 20 }, (_caller, index) => instance.cache.setIfAbsent(key, index));
    const stored = (await Promise.all(callers)).flatMap((each, index) => (each ? [index] : []));
    expect(stored).toHaveLength(1);
    expect(await instance.cache.get(key)).toBe(stored[0]);
  });

  it.each([null, undefined, 0, '', { a: 1 }])('keeps %p, which get finds', async (value) => {
    await instance.cache.set(key, value, { tags: [key], staleTtl: '1h' });
    expect(await instance.cache.setIfAbsent(key, 'new')).toBe(false);
    expect(await instance.cache.get(key)).toEqual(value);
  });
});

it('in Redis, setIfAbsent stores in place of a value of another serializer', async () => {
  await using earlier = await openCache({ redis: server.url, cache: { serializer: json('v1') } });
  await using later = await openCache({ redis: server.url, cache: { serializer: json('v2') } });
  await earlier.cache.set('shared', { v: 1 });
  expect(await later.cache.setIfAbsent('shared', { v: 2 })).toBe(true);
  expect(await later.cache.get('shared')).toEqual({ v: 2 });
});
