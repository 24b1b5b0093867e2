import { jest } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Cached, CacheEvict, type CacheOperations, type CacheService } from 'nest-redis-lock';
import { cacheApp } from '../../../support/cache-app.js';
import { closeCaches, openCache, openCaches } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { type RedisCluster, startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

let server: RedisServer;
let cluster: RedisCluster;

beforeAll(async () => {
  [server, cluster] = await Promise.all([startRedisServer(), startRedisCluster()]);
});
afterAll(() => Promise.all([server.stop(), cluster.stop()]));

const SOFT = { soft: true } as const;
/** The stale value is the answer only when the loader fails. */
const FALL_BACK = { ttl: '5m', staleTtl: '1h', softTimeout: '10s', restAfterError: 0 } as const;
const failing = () => Promise.reject(new Error('no database'));
const whatIsStale = (cache: CacheOperations, key: string) => cache.getOrSet<string>(key, failing, FALL_BACK);

async function onCluster() {
  const client = cluster.client();
  const instance = await openCache({ redis: client });
  const close = async () => {
    await instance.close();
    client.disconnect();
  };
  return { ...instance, close, [Symbol.asyncDispose]: close };
}

describe.each([
  ['on Redis', () => openCache({ redis: server.url, prefix: 'plain' })],
  ['on Redis, with a first level', () => openCache({ redis: server.url, prefix: 'fronted', cache: { l1: {} } })],
  ['on a Cluster', onCluster],
  ['in memory', () => openCache({ redis: server.url, cache: { memory: {} } })],
  [
    'compressed, with a serializer of its own',
    () => {
      const serializer = {
        name: 'json',
        serialize: JSON.stringify,
        deserialize: (data: Buffer) => JSON.parse(data.toString()),
      };
      return openCache({ redis: server.url, prefix: 'json', cache: { serializer, compression: { threshold: 1 } } });
    },
  ],
])('%s', (_, open) => {
  const kinds: [string, (cache: CacheOperations, key: string) => Promise<unknown>][] = [
    ['by key', (cache, key) => cache.expire(key, SOFT)],
    ['by tag', (cache) => cache.expireByTag('t')],
    ['by a tag of the loader', (cache) => cache.expireByTag('named')],
  ];
  const store = (cache: CacheOperations, key: string, value: unknown = 'old', staleTtl: string | number = '1h') =>
    cache.getOrSet(
      key,
      ({ setTags }) => {
        setTags(['named']);
        return value;
      },
      { ttl: '1h', staleTtl: staleTtl as number, tags: ['t'] },
    );

  describe.each(kinds)('a soft expiry %s', (kind, expire) => {
    it.each(['1h', 0])('keeps the value for a loader that fails (staleTtl at the store: %p)', async (staleTtl) => {
      await using instance = await open();
      const cache = instance.cache.namespace(`kept ${staleTtl} ${kind}`);
      await store(cache, 'k', 'old', staleTtl);
      await cache.set('bystander', 'fresh', { tags: ['u'] });
      await expire(cache, 'k');
      expect(await cache.get('k')).toBeUndefined();
      expect(await cache.has('k')).toBe(false);
      expect(await cache.ttl('k')).toBeGreaterThan(3_000_000);
      expect(await whatIsStale(cache, 'k')).toBe('old');
      await expect(cache.getOrSet('k', failing, { staleTtl: 0 })).rejects.toThrow('no database');
      await expect(cache.getOrSet('k', failing, { ...FALL_BACK, consistency: 'strong' })).rejects.toThrow();
      expect(await cache.getOrSet('k', () => 'new', FALL_BACK)).toBe('new');
      expect(await cache.get('k')).toBe('new');
      expect(await cache.get('bystander')).toBe('fresh');
    });

    it('never serves the value without staleTtl, also where the clock is behind that of Redis', async () => {
      await using instance = await open();
      const cache = instance.cache.namespace(`behind ${kind}`);
      await store(cache, 'k');
      await expire(cache, 'k');
      const now = Date.now.bind(Date);
      const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() - 1_000);
      try {
        await expect(cache.getOrSet('k', failing, { staleTtl: 0 })).rejects.toThrow('no database');
      } finally {
        clock.mockRestore();
      }
    });

    it('does not let a load that began before store anything that is fresh', async () => {
      await using instance = await open();
      const cache = instance.cache.namespace(`fenced ${kind}`);
      await store(cache, 'k');
      const [begun, gate] = [new Gate(), new Gate()];
      const slow = cache.getOrSet(
        'k',
        async ({ setTags }) => {
          begun.open();
          await gate.opened;
          setTags(['named']);
          return 'read before';
        },
        { ...FALL_BACK, forceFresh: true, tags: ['t'] },
      );
      await begun.opened;
      await expire(cache, 'k');
      gate.open();
      expect(await slow).toBe('read before');
      expect(await cache.get('k')).toBeUndefined();
      expect(await cache.getOrSet('k', () => 'new', FALL_BACK)).toBe('new');
    });

    it('never overwrites what is newer, and is ended by a deletion', async () => {
      await using instance = await open();
      const cache = instance.cache.namespace(`ended ${kind}`);
      await store(cache, 'k');
      await expire(cache, 'k');
      await expire(cache, 'k');
      expect(await whatIsStale(cache, 'k')).toBe('old');
      await cache.deleteByTag('t');
      await expect(whatIsStale(cache, 'k')).rejects.toThrow('no database');
      await cache.expireByTag('t');
      await expect(whatIsStale(cache, 'k')).rejects.toThrow('no database');
      await store(cache, 'k', 'second');
      await expire(cache, 'k');
      await cache.set('k', 'set', { tags: ['t'] });
      expect(await cache.get('k')).toBe('set');
      await expire(cache, 'k');
      await cache.del('k');
      await expect(whatIsStale(cache, 'k')).rejects.toThrow('no database');
    });

    it('serves nothing that says that there is nothing', async () => {
      await using instance = await open();
      const cache = instance.cache.namespace(`null ${kind}`);
      await store(cache, 'k', null);
      await expire(cache, 'k');
      await expect(whatIsStale(cache, 'k')).rejects.toThrow('no database');
    });

    it('is not undone by a clock that is behind', async () => {
      await using instance = await open();
      const cache = instance.cache.namespace(`clock ${kind}`);
      await store(cache, 'k');
      const now = Date.now();
      const clock = jest.spyOn(Date, 'now').mockImplementation(() => now + 1_000_000);
      try {
        await expire(cache, 'k');
      } finally {
        clock.mockRestore();
      }
      expect(await cache.has('k')).toBe(false);
      expect(await whatIsStale(cache, 'k')).toBe('old');
    });
  });

  it('a value of two tags is stale by either, and gone with either', async () => {
    await using instance = await open();
    const cache = instance.cache.namespace('two');
    await store(cache, 'k');
    await cache.expireByTag(['t', 'named']);
    expect(await whatIsStale(cache, 'k')).toBe('old');
    expect(await cache.getOrSet('k', failing, { ...FALL_BACK, tags: ['t'] })).toBe('old');
    await cache.deleteByTag('named');
    await expect(whatIsStale(cache, 'k')).rejects.toThrow('no database');
  });

  it('counts what it found, in namespaces and for many keys, and deletes numbers', async () => {
    await using instance = await open();
    const cache = instance.cache.namespace('count');
    await cache.set('a', 'a', { ttl: '1h' });
    await cache.set('n', 7);
    expect(await cache.expire(['a', 'n', 'none'], SOFT)).toBe(2);
    expect(await whatIsStale(cache, 'a')).toBe('a');
    await expect(whatIsStale(cache, 'n')).rejects.toThrow('no database');
    expect(await cache.incr('n', { ttl: '1m' })).toBe(1);
    expect(await instance.cache.expire('a', SOFT)).toBe(0);
  });

  it('does not lengthen the time for which a value is stale', async () => {
    await using instance = await open();
    const cache = instance.cache.namespace('late');
    await cache.set('k', 'old', { ttl: 1, staleTtl: '1h' });
    await eventually(async () => !(await cache.has('k')));
    const now = Date.now();
    const clock = jest.spyOn(Date, 'now').mockImplementation(() => now + 600_000);
    try {
      await cache.expire('k', SOFT);
      await expect(cache.getOrSet('k', failing, { ...FALL_BACK, staleTtl: '5m' })).rejects.toThrow('no database');
    } finally {
      clock.mockRestore();
    }
  });

  it('can be gathered, and keeps the order of the calls', async () => {
    await using instance = await open();
    const cache = instance.cache.namespace('order');
    const done = await cache.pipeline().set('k', 'v').expire('k', SOFT).get('k').set('k', 'w').get('k').exec();
    expect(done).toEqual([undefined, 1, undefined, undefined, 'w']);
  });

  it('lets nothing be stored while a barrier stands', async () => {
    await using instance = await open();
    const cache = instance.cache.namespace('barrier');
    await store(cache, 'k');
    await cache.expire('k', { soft: true, barrier: '1h' });
    expect(await cache.getOrSet('k', () => 'from a replica', FALL_BACK)).toBe('from a replica');
    expect(await cache.has('k')).toBe(false);
    expect(await whatIsStale(cache, 'k')).toBe('old');
  });
});

describe.each(['pubsub', 'tracking'] as const)('first levels of other processes, notified by %s', (bus) => {
  it.each(['key', 'tag'])('notice a soft expiry by %s', async (kind) => {
    const instances = await openCaches(2, server.port, { l1: { ttl: '1h', bus } });
    try {
      const [one, other] = instances.map(({ cache }) => cache) as [CacheService, CacheService];
      const key = `${bus}:${kind}`;
      const read = (cache: CacheService) => cache.getOrSet(key, () => 'old', { ttl: '1h', tags: [key] });
      await Promise.all([read(one), read(other)]);
      await eventually(async () => (await read(other)) && other.stats().firstLevelSize === 1);
      if (kind === 'key') await one.expire(key, SOFT);
      else await one.expireByTag(key);
      await eventually(async () => (await other.get(key)) === undefined);
      expect(await whatIsStale(other, key)).toBe('old');
    } finally {
      await closeCaches(instances);
    }
  });
});

it.each(['key', 'tag'])('a soft expiry by %s that is not confirmed is repeated as a deletion', async (kind) => {
  using scripted = scriptedCache();
  const { cache, store } = scripted;
  const step = kind === 'key' ? 'invalidate' : 'invalidateTag';
  const done = store[step];
  await cache.set('k', 'old', { tags: ['t'], ttl: '1h' });
  Object.assign(store, { [step]: () => Promise.reject(new Error('refused')) });
  const expire = () =>
    kind === 'key' ? cache.expire('k', { ...SOFT, onRedisError: 'throw' }) : cache.expireByTag('t');
  if (kind === 'key') await expect(expire()).rejects.toMatchObject({ code: 'CACHE_BACKEND' });
  else await expire();
  await expect(whatIsStale(cache, 'k')).rejects.toThrow('no database');
  Object.assign(store, { [step]: done });
  await eventually(() => scripted.engine.stats().unconfirmedInvalidations === 0);
  expect(await cache.ttl('k')).toEqual(kind === 'key' ? null : expect.any(Number));
  await expect(whatIsStale(cache, 'k')).rejects.toThrow('no database');
});

it('a soft expiry that is confirmed is none of the deletions that are not', async () => {
  using scripted = scriptedCache();
  const { cache, store } = scripted;
  const { invalidate } = store;
  await cache.set('k', 'old', { ttl: '1h' });
  Object.assign(store, {
    invalidate: (request: { staleSince?: number }) =>
      request.staleSince === undefined
        ? Promise.reject(new Error('refused'))
        : invalidate.call(store, { ...request, key: 'k' }),
  });
  await cache.del('k');
  expect(await cache.expire('k', SOFT)).toBe(1);
  expect(scripted.engine.stats().unconfirmedInvalidations).toBe(1);
  await expect(whatIsStale(cache, 'k')).rejects.toThrow('no database');
});

it.each([
  [{ soft: false }, /soft/],
  [{ soft: true, barrier: -1 }, /barrier/],
])('options that cannot be are refused: %p', async (options, message) => {
  using scripted = scriptedCache();
  await expect(scripted.cache.expire('k', options as never)).rejects.toThrow(message);
});

it('@CacheEvict expires keys and tags softly', async () => {
  let failed = false;

  @Injectable()
  class Products {
    @Cached('product:<0>', { ...FALL_BACK, tags: ['shop:<0>'] })
    async find(id: number): Promise<string> {
      return failed ? failing() : `product ${id}`;
    }

    @CacheEvict('product:<0>', { soft: true })
    async save(_id: number): Promise<void> {}

    @CacheEvict([], { tags: ['shop:<0>'], soft: true })
    async saveShop(_id: number): Promise<void> {}
  }
  await using application = await cacheApp({ providers: [Products] });
  const products = application.app.get(Products);
  for (const id of [1, 2]) await products.find(id);
  await products.save(1);
  await products.saveShop(2);
  failed = true;
  for (const id of [1, 2]) {
    expect(await application.cache.has(`product:${id}`)).toBe(false);
    expect(await products.find(id)).toBe(`product ${id}`);
  }
  expect(() => CacheEvict([], { prefix: 'product:', soft: true })).toThrow(/prefix.*soft/);
  expect(() => CacheEvict('k', { soft: 1 as never })).toThrow(/soft/);
});
