import { deflateRawSync } from 'node:zlib';
import { Redis } from 'ioredis';
import { instancesOf, typedSerializer, type CacheOptions, type CacheSerializer } from 'nest-redis-lock';
import { memoryCacheStore } from '../../../../lib/backends/memory/memory-cache-store.js';
import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';
import { openCache, type CacheInstance } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { scriptedCache } from '../../../support/scripted-cache.js';

let server: RedisServer;
let redis: Redis;
let keys = 0;
let key: string;

beforeAll(async () => {
  server = await startRedisServer();
  redis = new Redis(server.url);
});
beforeEach(() => (key = `value:${++keys}`));
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

const onRedis = (cache: CacheOptions = {}): Promise<CacheInstance> => openCache({ redis: server.url, cache });

/** Hands out the very bytes it is given. */
const raw: CacheSerializer = {
  serialize: (value) => value as Buffer,
  deserialize: (data) => data,
};

const bytes: [string, () => unknown, (value: never) => Uint8Array][] = [
  ['a Buffer', () => Buffer.from('bytes'), (value: Buffer) => value],
  ['a Uint8Array', () => Uint8Array.of(1, 2, 3), (value: Uint8Array) => value],
  ['an ArrayBuffer', () => Uint8Array.of(1, 2).buffer, (value: ArrayBuffer) => new Uint8Array(value)],
  ['a DataView', () => new DataView(Uint8Array.of(1, 2).buffer), ({ buffer }: DataView) => new Uint8Array(buffer)],
  [
    'a Buffer within objects and lists',
    () => ({ parts: [{ body: Buffer.from('bytes') }] }),
    (value: { parts: { body: Buffer }[] }) => value.parts[0]!.body,
  ],
  ['a Buffer in a Map', () => new Map([['a', Buffer.from('bytes')]]), (value: Map<string, Buffer>) => value.get('a')!],
];

describe.each(bytes)('%s', (_, make, bytesOf) => {
  const change = (value: unknown) => bytesOf(value as never).fill(0xff);

  async function isNeverShared(read: () => Promise<unknown>, times = 4): Promise<void> {
    for (let time = 0; time < times; time++) {
      const value = await read();
      expect(value).toEqual(make());
      change(value);
    }
  }

  it('that one caller changes is as it was for the next, at the first level and in Redis', async () => {
    await using instance = await onRedis({ l1: {} });
    await isNeverShared(() => instance.cache.getOrSet(key, make));
    await isNeverShared(() => instance.cache.get(key));
    await using behind = await onRedis();
    await isNeverShared(() => behind.cache.getOrSet(key, make));
  });

  it('that one caller changes is as it was for the next, in memory', async () => {
    using scripted = scriptedCache({ l1: {} }, memoryCacheStore());
    await isNeverShared(() => scripted.cache.getOrSet(key, make));
    using plain = scriptedCache();
    await isNeverShared(() => plain.cache.getOrSet(key, make));
    await isNeverShared(() => plain.cache.get(key));
  });
});

it('bytes that a serializer hands out as it got them are as they were for the next caller', async () => {
  await using instance = await onRedis({ l1: {}, serializer: raw });
  for (let time = 0; time < 4; time++) {
    const value = await instance.cache.getOrSet(key, () => Buffer.from('bytes'));
    expect(value.toString()).toBe('bytes');
    value.fill(0);
  }
});

it('callers who share one load share its object, where there are no bytes in it', async () => {
  using scripted = scriptedCache();
  await eventually(() => scripted.engine.busConnected);
  const [one, other] = await Promise.all([1, 2].map(() => scripted.cache.getOrSet(key, () => ({ list: [1] }))));
  expect(one).toBe(other);
});

describe('a stored "__proto__"', () => {
  class User {
    readonly name!: string;
    get isAdmin(): boolean {
      return false;
    }
  }
  const crafted = () =>
    JSON.parse('{"name":"bob","__proto__":{"isAdmin":true},"deep":{"__proto__":{"isAdmin":true}}}') as User;

  it.each([
    ['as JSON', crafted],
    ['packed', () => Object.defineProperty(crafted(), 'at', { value: new Date(0), enumerable: true })],
  ])('chooses no prototype: %s', async (_, make) => {
    await using instance = await onRedis({ l1: {} });
    for (let time = 0; time < 3; time++) {
      const user = await instance.cache.getOrSet(key, make, { revive: instancesOf(User) });
      if (time > 0) {
        expect(Object.getPrototypeOf(user)).toBe(User.prototype);
        expect(Object.assign({}, user)).not.toHaveProperty('isAdmin');
      }
      expect(user.isAdmin).not.toBe(true);
      expect((user as unknown as { deep: User }).deep.isAdmin).toBeUndefined();
    }
  });

  it('chooses none for callers who share a load either', async () => {
    using scripted = scriptedCache();
    await eventually(() => scripted.engine.busConnected);
    const make = () => Object.assign(crafted(), { body: Buffer.from('x') });
    const both = await Promise.all([1, 2].map(() => scripted.cache.getOrSet(key, make)));
    for (const user of both) expect(user.isAdmin).toBeUndefined();
  });
});

it('instances of a class get what was stored, past its setters', async () => {
  class Price {
    declare cents: number;
    set amount(_: number) {
      throw new Error('a setter ran');
    }
  }
  const [price] = instancesOf(Price)([{ cents: 1, amount: 2 }]) as [Price];
  expect(price).toBeInstanceOf(Price);
  expect(Object.entries(price)).toEqual([
    ['cents', 1],
    ['amount', 2],
  ]);
});

describe('a value of another serializer', () => {
  const wrapped: CacheSerializer = {
    serialize: (value) => JSON.stringify({ json: value }),
    deserialize: (data) => (JSON.parse(data.toString()) as { json: unknown }).json,
  };
  const json: CacheSerializer = {
    serialize: (value) => JSON.stringify(value),
    deserialize: (data) => JSON.parse(data.toString()) as unknown,
  };
  const named = (name: string): CacheSerializer => ({ ...json, name });

  it.each([
    ['ours for another', typedSerializer(), wrapped],
    ['another for ours', wrapped, undefined],
    ['one without a name for another without', wrapped, json],
    ['one name for another name', named('v1'), named('v2')],
    ['one with a name for one without', named('v1'), json],
  ] as [string, CacheSerializer | undefined, CacheSerializer | undefined][])(
    'counts as absent: of %s',
    async (_, serializer, otherSerializer) => {
      await using one = await onRedis(serializer ? { serializer } : {});
      await using other = await onRedis(otherSerializer ? { serializer: otherSerializer } : {});
      const options = { tags: ['tagged'] };
      for (const tags of [{}, options]) {
        const of = `${key}:${Object.keys(tags).length}`;
        await one.cache.set(of, { of: 'one' }, tags);
        expect(await other.cache.get(of)).toBeUndefined();
        expect(await other.cache.has(of)).toBe(false);
        expect(await other.cache.getOrSet(of, () => ({ of: 'other' }), tags)).toEqual({ of: 'other' });
        expect(await other.cache.getOrSet(of, () => 'loaded twice', tags)).toEqual({ of: 'other' });
      }
    },
  );

  it.each([
    ['ours', () => typedSerializer()],
    ['one of the same text', () => ({ ...wrapped })],
    ['one of the same name', () => named('v1')],
  ])('is read by %s, and refreshed', async (_, make) => {
    await using one = await onRedis({ serializer: make(), l1: {} });
    await using other = await onRedis({ serializer: make(), l1: {} });
    const options = { refreshAhead: { beta: 1_000_000 } } as const;
    await one.cache.getOrSet(key, () => 'first', options);
    expect(await other.cache.getOrSet(key, () => 'other')).toBe('first');
    await one.cache.getOrSet(key, () => 'second', options);
    expect(await one.cache.get(key)).toMatch(/first|second/);
  });

  it.each([[''], [5], [null]])('has no name that is %p', async (name) => {
    const serializer = { ...json, name } as CacheSerializer;
    expect(() => scriptedCache({ serializer })).toThrow(/"cache.serializer.name" is/);
  });
});

describe('what inflates to much', () => {
  const large = 'x'.repeat(2_000_000);
  const crafted = () => Buffer.concat([Buffer.from('\x01Dzzzzzzzzz\n'), deflateRawSync(JSON.stringify(large))]);

  it.each([
    ['where nothing is compressed', {}],
    ['beyond the limit', { compression: { maxBytes: 1_000_000 } }],
  ] as [string, CacheOptions][])('counts as absent %s', async (_, options) => {
    await using instance = await onRedis(options);
    await redis.set(`cache:${key}`, crafted());
    expect(await instance.cache.get(key)).toBeUndefined();
    expect(await instance.cache.getOrSet(key, () => 'loaded')).toBe('loaded');
    expect(instance.logger.matching(/cannot be read and counts as absent/)).not.toEqual([]);
  });

  it('is read within the limit', async () => {
    await using instance = await onRedis({ compression: {} });
    await redis.set(`cache:${key}`, crafted());
    expect(await instance.cache.get(key)).toBe(large);
  });

  it('is not compressed, where it is beyond the limit before that', async () => {
    await using instance = await onRedis({ compression: { threshold: 10, maxBytes: 1_000_000 } });
    // Two megabytes can take a busy machine longer than `commandTimeout`.
    await eventually(async () => {
      await instance.cache.set(key, large);
      return (await redis.strlen(`cache:${key}`)) > large.length;
    });
    expect(await instance.cache.get(key)).toBe(large);
    await instance.cache.set(key, large.slice(0, 500_000));
    expect(await redis.strlen(`cache:${key}`)).toBeLessThan(100_000);
  });

  it.each([[{ maxBytes: 0 }], [{ maxBytes: '1MB' }], [{ limit: 1 }]])('compression %p is refused', (compression) => {
    expect(() => scriptedCache({ compression } as CacheOptions)).toThrow(/cache.compression/);
  });
});
