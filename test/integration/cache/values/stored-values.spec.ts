import { Readable } from 'node:stream';
import { deflateRawSync } from 'node:zlib';
import { Injectable, StreamableFile } from '@nestjs/common';
import { Redis } from 'ioredis';
import {
  CacheConfigError,
  Cached,
  type CacheOptions,
  CachePut,
  type CacheSerializer,
  instancesOf,
  memory,
  type RedisLockModuleOptions,
  typedSerializer,
} from 'nest-redis-lock';
import { EMPTY } from 'rxjs';
import { memoryCacheStore } from '../../../../lib/backends/memory/memory-cache-store.js';
import { cacheApp } from '../../../support/cache-app.js';
import { type CacheInstance, openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('stored values', () => {
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
    [
      'a Buffer in a Map',
      () => new Map([['a', Buffer.from('bytes')]]),
      (value: Map<string, Buffer>) => value.get('a')!,
    ],
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

  it('a whole number that set stores is digits for incr, which no serializer sees; in an object, it is not', async () => {
    const hidden: CacheSerializer = {
      serialize: (value) => Buffer.from(JSON.stringify(value)).toString('base64'),
      deserialize: (data) => JSON.parse(Buffer.from(data.toString(), 'base64').toString()) as unknown,
    };
    await using instance = await onRedis({ serializer: hidden });
    await instance.cache.set('whole', 41);
    await instance.cache.set('within', { card: 4_111_111 });
    expect(await redis.get('cache:whole')).toBe('41');
    expect(await redis.get('cache:within')).not.toContain('4111111');
    expect(await instance.cache.incr('whole', { ttl: '1m' })).toBe(42);
    expect(await instance.cache.get('within')).toEqual({ card: 4_111_111 });
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

    it.each([undefined, 5, null, Promise.resolve('text'), {}])(
      'makes bytes or text of a value, not %p',
      async (made) => {
        await using app = await onRedis({ serializer: { ...json, serialize: () => made as never } });
        await expect(app.cache.set(key, { a: 1 })).rejects.toThrow(/"cache.serializer" returned .*text or bytes/);
        expect(await app.cache.getOrSet(key, () => 'loaded')).toBe('loaded');
        expect(await app.cache.has(key)).toBe(false);
      },
    );

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
});

describe('foreign values', () => {
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
});

class User {
  constructor(
    readonly id: string,
    readonly passwordHash = 'secret',
  ) {}
}

class Money {
  constructor(readonly cents: number) {}
}

@Injectable()
class Users {
  @Cached('user:<0>')
  async find(id: string): Promise<User> {
    return new User(id);
  }

  @Cached('revived:<0>', { revive: instancesOf(User) })
  async revived(id: string): Promise<User> {
    return new User(id);
  }

  @CachePut('money:<0>')
  async put(id: string): Promise<{ id: string; prices: Map<string, Money[]> }> {
    return { id, prices: new Map([['eur', [new Money(1)]]]) };
  }
}

describe.each<[string, RedisLockModuleOptions]>([
  ['Redis', {}],
  ['memory', { backend: memory(), redis: undefined } as object],
])('on %s', (_where, module) => {
  const start = (cache = {}) => cacheApp({ providers: [Users] }, { module: { ...module, cache } });

  it('an instance of a class without "revive" is warned of once, with the class and the remedy', async () => {
    await using app = await start();
    const users = app.app.get(Users);
    await users.find('1');
    await users.find('1');
    await users.find('2');
    const lines = app.logger.matching(/plain object/);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^The value of "user:1" is an instance of User, .*"revive: instancesOf\(User\)"/);
  });

  it('none is warned of with "revive"', async () => {
    await using app = await start();
    const users = app.app.get(Users);
    await users.revived('1');
    expect(await users.revived('1')).toBeInstanceOf(User);
    expect(app.logger.matching(/plain object/)).toEqual([]);
  });

  it('is found anywhere inside a value, whichever method stores it', async () => {
    await using app = await start();
    await app.app.get(Users).put('1');
    await app.cache.set('list', { rows: [{ id: 1 }, { owner: new User('1') }] });
    await app.cache.getOrSet('again', async () => new Set([new User('2')]));
    const lines = app.logger.matching(/plain object/);
    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatch(/"money:1" holds an instance of Money \(\.prices\[0\]\[0\]\)/);
    expect(lines[1]).toMatch(/"list" holds an instance of User \(\.rows\[1\]\.owner\)/);
  });

  it('what the serializer keeps is not warned of', async () => {
    await using app = await start();
    const cycle: { self?: object } = {};
    cycle.self = cycle;
    const kept = { at: new Date(), map: new Map([[1, new Set([2])]]), re: /x/, bytes: Buffer.from('x'), cycle };
    await app.cache.set('kept', [kept, Object.create(null), new Error('x'), new Uint8Array(2), 7n, 'text', null]);
    expect(app.logger.matching(/plain object/)).toEqual([]);
  });

  it.each([{}, { cause: 7n }])('an AggregateError keeps its message, its errors, and its cause: %p', async (more) => {
    await using app = await start();
    const error = new AggregateError([new TypeError('one'), { two: 2n }], 'of both', more);
    await app.cache.set('failure', { error });
    const read = (await app.cache.get<{ error: AggregateError }>('failure'))?.error;
    expect(read).toBeInstanceOf(AggregateError);
    expect(read).toMatchObject({ message: 'of both', errors: [{ message: 'one' }, { two: 2n }], ...more });
    expect(Object.hasOwn(read as object, 'cause')).toBe('cause' in more);
  });

  it('a promise inside of a value is refused, and what was loaded with one is not stored', async () => {
    await using app = await start();
    const value = () => ({ rows: [{ total: Promise.resolve(1) }] });
    await expect(app.cache.set('promise', value())).rejects.toThrow(CacheConfigError);
    await expect(app.cache.set('promise', value())).rejects.toThrow(
      /"promise".*\.rows\[0\]\.total is a promise; await it/,
    );
    const loaded = value();
    expect(await app.cache.getOrSet('promise', async () => loaded)).toBe(loaded);
    expect(await app.cache.has('promise')).toBe(false);
    expect(app.logger.matching(/\.total is a promise/)).toHaveLength(1);
  });

  it.each([
    ['behind 600 objects', (promise: unknown) => ({ rows: rows(600), total: promise }), /\.total is a promise/],
    ['in the last of 600 objects', (promise: unknown) => [...rows(600), { total: promise }], /\[600\]\.total is a/],
    ['as a key of a Map', (promise: unknown) => new Map([[promise, 1]]), /\.keys\(\)\[0\] is a promise/],
  ])('a promise %s is refused', async (_, valueWith, why) => {
    await using app = await start();
    await expect(app.cache.set('promise', valueWith(Promise.resolve(1)))).rejects.toThrow(why);
  });

  it('a value of 600 objects that has a cycle, and no promise, is kept', async () => {
    await using app = await start();
    const value: { rows: object[]; self?: unknown } = { rows: rows(600) };
    value.self = value;
    value.rows.push(value);
    await app.cache.set('cycle', value);
    expect((await app.cache.get<typeof value>('cycle'))?.rows).toHaveLength(601);
  });

  it.each([
    ['a stream', () => Readable.from(['a'])],
    ['a stream', () => new ReadableStream()],
    ['a StreamableFile', () => new StreamableFile(Buffer.from('a'))],
    ['a Response', () => new Response('a')],
    ['an Observable', () => EMPTY],
  ])('%s, or a value that holds one, is refused, and what was loaded with it is not stored', async (what, make) => {
    await using app = await start();
    await expect(app.cache.set('file', make())).rejects.toThrow(`it is ${what}`);
    await expect(app.cache.set('file', { rows: [make()] })).rejects.toThrow(`.rows[0] is ${what}`);
    const loaded = { body: make() };
    expect(await app.cache.getOrSet('file', async () => loaded)).toBe(loaded);
    expect(await app.cache.has('file')).toBe(false);
  });

  it.each([0, '0ms', '0s'] as const)('setTtl(%j) does not store', async (ttl) => {
    await using app = await start();
    let loads = 0;
    const load = () =>
      app.cache.getOrSet('unstored', async ({ setTtl }) => {
        setTtl(ttl);
        loads += 1;
        return loads;
      });
    expect([await load(), await load()]).toEqual([1, 2]);
    expect(await app.cache.has('unstored')).toBe(false);
  });

  it('a value that is too large is refused, and the cache goes on', async () => {
    await using app = await start({ maxValueBytes: 1_000 });
    const large = 'é'.repeat(600);
    await expect(app.cache.set('large', large)).rejects.toThrow(CacheConfigError);
    await expect(app.cache.set('large', large)).rejects.toThrow(
      /"large".* bytes, more than cache\.maxValueBytes \(1000\)/,
    );
    for (let call = 0; call < 7; call += 1) {
      expect(await app.cache.getOrSet('large', async () => large)).toBe(large);
    }
    expect(await app.cache.has('large')).toBe(false);
    expect(app.logger.matching(/"large" cannot be stored: .*maxValueBytes/)).toHaveLength(1);
    await app.cache.set('fits', 'é'.repeat(400));
    expect(await app.cache.get('fits')).toBe('é'.repeat(400));
    expect(app.cache.stats().breakerOpened).toBe(0);
  });

  it('counts the size of a value as it is compressed', async () => {
    await using app = await start({ maxValueBytes: 1_000, compression: { threshold: 100 } });
    await app.cache.set('compressed', 'a'.repeat(50_000));
    expect(await app.cache.get('compressed')).toBe('a'.repeat(50_000));
  });
});

function rows(count: number): object[] {
  return Array.from({ length: count }, (_, id) => ({ id }));
}
