import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { Redis, type RedisOptions } from 'ioredis';
import type { CacheStore } from '../../../../lib/contracts/cache-store.js';
import { RedisCacheKeys } from '../../../../lib/backends/redis/cache/redis-cache-keys.js';
import { openRedisCacheStore } from '../../../../lib/backends/redis/cache/redis-cache-store.js';
import type { RedisConnection } from '../../../../lib/options/redis-connection.js';
import { startRedisServer, type RedisServer } from '../../../support/servers/redis-server.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { RecordingCacheTracker } from '../../../support/recording-cache-tracker.js';

/** Long enough (ms) that nothing which a test does not wait for ends by itself. */
const LONG = 60_000;

it('makes of every value the key that it is of', () => {
  const letters = fc.constantFrom('{', '}', '%', '2', '5', '7', 'D', 'd', ':', 'a', 'ü', '\n', '€', '𝄞');
  const key = fc.oneof(fc.string({ unit: letters, minLength: 1, maxLength: 12 }), fc.string({ unit: 'binary' }));
  const prefix = fc.constantFrom(undefined, 'shop', '{shop}', '%7D', 'cache:');
  fc.assert(
    fc.property(key, prefix, fc.constantFrom(undefined, 'app:', '%25'), (of, before, clientPrefix) => {
      const keys = new RedisCacheKeys(before, clientPrefix);
      expect(keys.keyOf((clientPrefix ?? '') + keys.value(of))).toBe(of);
    }),
    { numRuns: 20_000 },
  );
});

describe('the Redis store tells of changes', () => {
  let server: RedisServer;
  let foreign: Redis;
  let prefix: string;
  let store: CacheStore;
  let told: string[];
  const opened: (() => void)[] = [];

  beforeAll(async () => {
    server = await startRedisServer();
    foreign = new Redis(server.url);
  });
  beforeEach(async () => {
    prefix = randomUUID();
    ({ store, told } = await open(server.url));
  });
  afterEach(() => {
    for (const close of opened.splice(0)) close();
  });
  afterAll(async () => {
    foreign.disconnect();
    await server.stop();
  });

  async function open(connection: RedisConnection): Promise<{ store: CacheStore; told: string[] }> {
    const tracker = new RecordingCacheTracker();
    const fresh = openRedisCacheStore(connection, prefix);
    opened.push(() => fresh.close());
    fresh.track?.(tracker);
    await eventually(() => tracker.told.includes('tracked'));
    return { store: fresh, told: tracker.told };
  }

  /** Through a proxy that only the connection for changes takes. */
  async function openBehind(proxy: FaultProxy): Promise<{ client: Redis; told: string[] }> {
    const client = new Redis(server.url);
    opened.push(() => client.disconnect());
    const duplicate = client.duplicate.bind(client);
    client.duplicate = (options?: Partial<RedisOptions>) => duplicate({ ...options, port: proxy.port });
    return { client, ...(await open(client)) };
  }

  const physical = (key: string) => new RedisCacheKeys(prefix).value(key);
  const set = (key: string, ttl = LONG) => store.set({ key, data: 'x', ttl });
  const times = (message: string) => told.filter((each) => each === message).length;

  /** Forgets the messages received so far. */
  async function settle(): Promise<void> {
    const mark = randomUUID();
    await foreign.set(physical(mark), '', 'PX', LONG);
    await eventually(() => told.includes(`changed ${mark}`));
    told.length = 0;
  }

  it.each(['a', 'a}b', '{t}:1', '%7D', 'ü \n€', '*'])('that others make to %j', async (key) => {
    for (const change of [
      () => foreign.set(physical(key), '1'),
      () => foreign.append(physical(key), '2'),
      () => foreign.pexpire(physical(key), LONG),
      () => foreign.persist(physical(key)),
      () => foreign.rename(physical(key), 'elsewhere'),
      () => foreign.rename('elsewhere', physical(key)),
      () => foreign.del(physical(key)),
    ]) {
      await settle();
      await change();
      await eventually(() => told.includes(`changed ${key}`));
    }
    expect(new Set(told)).toEqual(new Set([`changed ${key}`]));
  });

  it('by time', async () => {
    await set('k', 150);
    await settle();
    await eventually(() => told.includes('changed k'));
    expect(await foreign.exists(physical('k'))).toBe(0);
  });

  it('by eviction', async () => {
    await set('k');
    await settle();
    await foreign.config('SET', 'maxmemory-policy', 'allkeys-random');
    try {
      await foreign.config('SET', 'maxmemory', '1');
      await foreign.set('more', 'memory').catch(() => {});
      await eventually(() => told.includes('changed k'));
    } finally {
      await foreign.config('SET', 'maxmemory', '0');
    }
  });

  it.each(['flushall', 'flushdb'] as const)('by %s', async (flush) => {
    await set('k');
    await settle();
    await foreign[flush]();
    await eventually(() => told.includes('all changed'));
  });

  it('of its own prefix only, and of values only', async () => {
    await foreign.set(`other:cache:k`, '1');
    await foreign.set(`${prefix}:cache-tag:t`, '1');
    await foreign.set(`${prefix}x:cache:k`, '1');
    await store.lease({ key: 'k', token: 't', lease: LONG, refresh: false, waits: false });
    await store.beginTags(['t'], LONG);
    await store.set({ key: 'last', data: 'x', ttl: LONG });
    await eventually(() => told.includes('changed last'));
    expect(told).toEqual(['tracked', 'changed last']);
  });

  it.each([{ keyPrefix: 'app:' }, { keyPrefix: '{app}', lazyConnect: true }, { db: 3 }])(
    'to a client with %j',
    async (options) => {
      const client = new Redis(server.url, options);
      opened.push(() => client.disconnect());
      const { told: heard } = await open(client);
      await foreign.set((options.keyPrefix ?? '') + physical('a}b'), '1');
      await eventually(() => heard.includes('changed a}b'));
    },
  );

  it('again after its connection was killed, and says that it did not in between', async () => {
    const clients = (await foreign.client('LIST')) as string;
    const tracking = clients.split('\n').filter((line) => /flags=\w*B/.test(line));
    expect(tracking).toHaveLength(1);
    const id = /id=(\d+)/.exec(tracking[0] as string)?.[1] as string;
    await foreign.client('KILL', 'ID', id);
    await eventually(() => times('tracked') === 2);
    expect(told).toEqual(['tracked', 'untracked', 'tracked']);
    await foreign.set(physical('k'), '1');
    await eventually(() => told.includes('changed k'));
  });

  it('and notices that their messages no longer arrive', async () => {
    const proxy = await FaultProxy.start(server.port);
    const { told: heard } = await openBehind(proxy);
    proxy.silence();
    await eventually(() => heard.filter((each) => each === 'tracked').length === 2);
    expect(heard).toEqual(['tracked', 'untracked', 'tracked']);
    await foreign.set(physical('k'), '1');
    await eventually(() => heard.includes('changed k'));
    await proxy.stop();
  });

  it('until it is closed', async () => {
    store.close();
    await eventually(async () => {
      const clients = (await foreign.client('LIST')) as string;
      return !/flags=\w*B/.test(clients);
    });
    expect(told).toEqual(['tracked']);
  });

  it('unless Redis refuses, which it says and tries again', async () => {
    await foreign.acl('SETUSER', 'app', 'on', '>pw', '~*', '&*', '+@all', '-client|tracking');
    const tracker = new RecordingCacheTracker();
    const refused = openRedisCacheStore({ port: server.port, username: 'app', password: 'pw' }, prefix);
    opened.push(() => refused.close());
    refused.track?.(tracker);
    await eventually(() => tracker.told.some((each) => /^refused NOPERM .*client\|tracking/.test(each)));
    await foreign.acl('SETUSER', 'app', '+client|tracking');
    await eventually(() => tracker.told.includes('tracked'), { within: 20_000 });
    expect(tracker.told).toHaveLength(2);
  });
});
