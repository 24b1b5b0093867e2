import { createClient } from '@redis/client';
import { jest } from '@jest/globals';
import { Cluster, Redis } from 'ioredis';
import {
  CacheService,
  CountDownLatch,
  LockBackendError,
  memory,
  PrimitiveBackendError,
  RateLimiter,
  redis,
  type RedisConnection,
  SemaphoreService,
} from 'nest-redis-lock';
import { redlock } from 'nest-redis-lock/redlock';
import { openRedisCacheStore } from '../../../../lib/backends/redis/cache/redis-cache-store.js';
import { eventually } from '../../../support/eventually.js';
import { leavingApps, startLockApp } from '../../../support/lock-app.js';
import { type RedisCluster, startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';
import { openBackend, type OpenBackend } from '../../../support/open-backend.js';

/**
 * How long (ms) applications that are refused wait: for an answer, and at their end, in which they give back what they
 * may have got.
 */
const commandTimeout = 2_000;

describe('a node of a Cluster that is given by itself', () => {
  /** It has every slot. */
  let only: RedisServer;
  let cluster: RedisCluster;
  beforeAll(async () => {
    only = await startRedisServer({ args: ['--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf'] });
    const admin = new Redis(only.url);
    await admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
    await eventually(async () => /cluster_state:ok/.test(await admin.cluster('INFO')));
    admin.disconnect();
    cluster = await startRedisCluster();
  }, 30_000);
  afterAll(async () => {
    await only.stop();
    await cluster.stop();
  });

  const REFUSAL = /node of a Redis Cluster.*give a client of the Cluster/;
  const urls: [string, () => string][] = [
    ['with all slots', () => only.url],
    ['with a part of the slots', () => cluster.servers[1]?.url ?? ''],
  ];

  it.each(urls)('%s is refused at the start, and each lock says why', async (_what, url) => {
    await expect(startLockApp({ redis: url(), failFast: true, cache: false })).rejects.toThrow(REFUSAL);
    await using app = await startLockApp({ redis: url(), cache: false });
    await eventually(() => app.logger.matching(REFUSAL).length === 1);
    const names = Array.from({ length: 8 }, (_, index) => `name:${index}`);
    const locks = await Promise.allSettled(names.map((name) => app.locks.acquire(name, { wait: 0 })));
    for (const lock of locks) expect(lock).toMatchObject({ reason: { message: expect.stringMatching(REFUSAL) } });
  });

  it('is refused by a client of node-redis, for the cache, and as a node of redlock()', async () => {
    const client = createClient({ url: only.url });
    client.on('error', () => {});
    await client.connect();
    const start = (to: RedisConnection) => startLockApp({ redis: to, failFast: true, cache: false });
    await expect(start(client)).rejects.toThrow(REFUSAL);
    const cache = startLockApp({ backend: memory(), failFast: true, cache: { redis: only.url } });
    await expect(cache).rejects.toThrow(REFUSAL);
    const nodes: OpenBackend = openBackend(redlock([only.url, ...cluster.servers.slice(0, 2).map(({ url }) => url)]));
    await expect(startLockApp({ backend: nodes, failFast: true, cache: false })).rejects.toThrow(REFUSAL);
    client.destroy();
  });

  it('serves the calls of one turn one by one, where the start was not checked', async () => {
    const backend = openBackend(redis(only.url));
    const names = Array.from({ length: 8 }, (_, index) => `alone:${index}`);
    const ticketOf = (name: string) => ({ prefix: undefined, name, ticket: `p:${name}`, ttl: 60_000 });
    const taking = names.map((name) => backend.acquire({ ...ticketOf(name), waits: false }));
    expect(await Promise.all(taking)).toEqual(names.map(() => expect.objectContaining({ status: 'granted' })));
    const renewed = await Promise.all(backend.renew(names.map(ticketOf)));
    expect(renewed).toEqual(names.map(() => expect.objectContaining({ status: 'renewed' })));
    const given = await Promise.all(names.map((name) => backend.release(ticketOf(name))));
    expect(given).toEqual(names.map(() => expect.objectContaining({ status: 'released' })));
    await backend.close();

    const store = openRedisCacheStore(only.url, undefined);
    const value = Buffer.from('value');
    await Promise.all(names.map((key) => store.set({ key, data: value, ttl: 60_000 })));
    expect(await Promise.all(names.map((key) => store.read(key)))).toEqual(names.map(() => value));
    store.close();
  });

  it('answers at once for a name that lies elsewhere', async () => {
    const [first] = cluster.servers as [RedisServer];
    const backend = { redis: first.url };
    await using app = await startLockApp({ ...backend, cache: false });
    const error: unknown = await app.locks.acquire('foo', { wait: 0 }).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(LockBackendError);
    expect((error as Error).message).toMatch(/MOVED.*give a client of the Cluster/);
  });
});

it('a key that the user may not touch fails alone', async () => {
  await using server = await startRedisServer();
  const admin = new Redis(server.url);
  await admin.call(
    'ACL',
    'SETUSER',
    'some',
    'on',
    '>pw',
    '+@all',
    '&*',
    '~lock:{allowed*',
    '~lock:{check*',
    '~cache:allowed*',
    '~{cache:allowed*',
    '~lease:{cache:allowed*',
    '~barrier:{cache:allowed*',
  );
  admin.disconnect();
  const connection = { host: '127.0.0.1', port: server.port, username: 'some', password: 'pw' };
  await using app = await startLockApp({
    redis: connection,
    shutdownGrace: 100,
    commandTimeout,
    cache: { defaults: { onRedisError: 'throw' } },
  });
  const names = Array.from({ length: 8 }, (_, index) => (index === 3 ? 'other' : `allowed:${index}`));
  const allowed = names.map((name) => (name === 'other' ? 'rejected' : 'fulfilled'));
  const statuses = (settled: PromiseSettledResult<unknown>[]) => settled.map(({ status }) => status);
  const locks = await Promise.allSettled(names.map((name) => app.locks.acquire(name, { wait: 0 })));
  expect(statuses(locks)).toEqual(allowed);
  const held = locks.flatMap((lock) => (lock.status === 'fulfilled' ? [lock.value] : []));
  await Promise.all(held.map((lock) => lock.extend()));
  await Promise.all(held.map((lock) => lock.release()));
  const cache = app.app.get(CacheService);
  expect(statuses(await Promise.allSettled(names.map((name) => cache.set(name, name))))).toEqual(allowed);
  const values = await Promise.allSettled(names.map((name) => cache.get(name)));
  expect(statuses(values)).toEqual(allowed);
});

it('rights that the user loses end the wait of who asks, and of who waits in the queue', async () => {
  await using server = await startRedisServer();
  const admin = new Redis(server.url);
  await admin.call('ACL', 'SETUSER', 'shop', 'on', '>pw', '~*', '&*', '+@all');
  const connection = { host: '127.0.0.1', port: server.port, username: 'shop', password: 'pw' };
  const options = { redis: connection, cache: false, commandTimeout: 500 } as const;
  await using one = await startLockApp(options);
  await using two = await startLockApp(options);
  await one.locks.acquire('held', { ttl: 1_000 });
  const queued = (['batched', 'fifo'] as const).map((order) => two.locks.acquire('held', { wait: Infinity, order }));
  const all = Promise.allSettled(queued);
  await eventually(async () => ((await one.locks.inspect('held'))?.waiting ?? 0) > 0);
  await admin.call('ACL', 'SETUSER', 'shop', '-evalsha', '-eval');
  const refused = { code: 'LOCK_BACKEND', message: expect.stringMatching(/NOPERM.*grant the ACL user/) };
  expect(await all).toEqual(queued.map(() => ({ status: 'rejected', reason: expect.objectContaining(refused) })));
  await expect(two.locks.acquire('free', { wait: Infinity })).rejects.toMatchObject(refused);
  await expect(two.locks.acquire(['a', 'b'], { wait: Infinity })).rejects.toMatchObject(refused);
  admin.disconnect();
});

it.each(['hget', 'pttl', 'time', 'zadd'])('the right to %s, lost within scripts, ends each wait', async (command) => {
  await using server = await startRedisServer();
  const admin = new Redis(server.url);
  await admin.call('ACL', 'SETUSER', 'shop', 'on', '>pw', '~*', '&*', '+@all');
  const connection = { host: '127.0.0.1', port: server.port, username: 'shop', password: 'pw' };
  await using app = await startLockApp({ redis: connection, cache: false, commandTimeout: 500 });
  await using holder = await startLockApp({ redis: server.url, cache: false });
  const semaphores = app.app.get(SemaphoreService);
  const held = [
    await holder.locks.acquire('held', { ttl: '10m' }),
    await holder.app.get(SemaphoreService).acquire('few', { permits: 1, ttl: '10m' }),
  ];
  const waits: Promise<unknown>[] =
    command === 'zadd'
      ? [semaphores.acquire('few', { permits: 1, wait: Infinity })]
      : [app.locks.acquire('held', { wait: Infinity }), app.locks.acquire('held', { wait: Infinity, mode: 'read' })];
  const all = Promise.allSettled(waits);
  await eventually(async () => (await admin.exists('lock:{held}:queue', 'semaphore:{few}:queue')) === 1);
  await admin.call('ACL', 'SETUSER', 'shop', `-${command}`);
  const reason = expect.objectContaining({ message: expect.stringContaining('grant the ACL user') });
  expect(await all).toEqual(waits.map(() => ({ status: 'rejected', reason })));
  for (const each of held) await each.release();
  admin.disconnect();
});

describe('a database that the server does not have', () => {
  const REFUSAL = /DB index is out of range.*fewer databases/;
  let server: RedisServer;
  let admin: Redis;
  beforeAll(async () => {
    server = await startRedisServer();
    admin = new Redis(server.url);
  });
  afterEach(async () => expect(await admin.dbsize()).toBe(0));
  const start = leavingApps();
  afterAll(async () => {
    const kept = await admin.dbsize();
    admin.disconnect();
    await server.stop();
    expect(kept).toBe(0);
  });

  const given = (clients: Redis[]) => {
    const client = new Redis(server.port, '127.0.0.1', { db: 99 });
    client.on('error', () => {});
    clients.push(client);
    return client;
  };
  const connections: [string, (clients: Redis[]) => RedisConnection][] = [
    ['a URL', () => `${server.url}/99`],
    ['options', () => ({ host: '127.0.0.1', port: server.port, db: 99 })],
    ['options of a client that retries for long', () => ({ port: server.port, db: 99, maxRetriesPerRequest: null })],
    ['a client', given],
  ];

  it.each(connections)('by %s: refused at the start, and nothing is kept in database 0', async (_what, make) => {
    const clients: Redis[] = [];
    const options = { commandTimeout, cache: false, shutdownGrace: 100 } as const;
    await expect(startLockApp({ redis: make(clients), ...options, failFast: true })).rejects.toThrow(REFUSAL);
    using app = await start({ redis: make(clients), ...options });
    await expect(app.locks.acquire('name', { wait: 0 })).rejects.toThrow(REFUSAL);
    await eventually(() => app.logger.matching(REFUSAL).length === 1);
    await expect(app.locks.acquire('name', { wait: 0 })).rejects.toThrow(REFUSAL);
    for (const client of clients) client.disconnect();
  });

  it('by a client that was connected before', async () => {
    const client = given([]);
    await eventually(() => client.status === 'ready');
    await expect(startLockApp({ redis: client, failFast: true, cache: false })).rejects.toThrow(REFUSAL);
    client.disconnect();
  });

  it('for the cache, and after a new connection', async () => {
    const other = await startRedisServer();
    const connection = { host: '127.0.0.1', port: other.port, db: 9 };
    const options = { commandTimeout, cache: { commandTimeout }, shutdownGrace: 100 } as const;
    await using app = await startLockApp({ redis: connection, ...options, failFast: true });
    await app.locks.withLock('name', async () => {});
    await other.stop();
    await using fewer = await startRedisServer({ port: other.port, args: ['--databases', '1'] });
    await eventually(async () => {
      const error: unknown = await app.locks.acquire('name', { wait: 0 }).catch((caught: unknown) => caught);
      return REFUSAL.test((error as Error).message);
    });
    await app.app.get(CacheService).set('key', 1);
    const look = new Redis(fewer.url);
    expect(await look.dbsize()).toBe(0);
    look.disconnect();
  });

  it('is no matter where the user selected another one', async () => {
    const client = new Redis(server.port, '127.0.0.1', { db: 3 });
    await client.select(4);
    await using app = await startLockApp({ redis: client, failFast: true, cache: false });
    await app.locks.withLock('name', async () => expect(await client.dbsize()).toBeGreaterThan(0));
    expect(await client.client('INFO')).toMatch(/ db=4 /);
    await client.flushdb();
    client.disconnect();
  });
});

describe('a database that is no number', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  const at = () => ({ host: '127.0.0.1', port: server.port });
  const connections: [string, () => RedisConnection][] = [
    ['a URL with a word', () => `${server.url}/abc`],
    ['a URL with a path of two', () => `${server.url}//2`],
    ['a URL with a number and more', () => `${server.url}/2/3`],
    ['a URL with a negative number', () => `${server.url}/-1`],
    ['a URL with a parameter', () => `${server.url}?db=abc`],
    ['the path of a socket with a parameter', () => '/tmp/redis.sock?db=2x'],
    ['options with NaN', () => ({ ...at(), db: Number(process.env['NO_SUCH_VARIABLE']) })],
    ['options with a word', () => ({ ...at(), db: 'abc' as unknown as number })],
    ['options with a negative number', () => ({ ...at(), db: -1 })],
    ['options with a fraction', () => ({ ...at(), db: 1.5 })],
    ['a client with NaN', () => new Redis({ ...at(), db: NaN, lazyConnect: true })],
    ['a Cluster with NaN', () => new Cluster([at()], { redisOptions: { db: NaN }, lazyConnect: true })],
    ['a client of node-redis with NaN', () => createClient({ url: server.url, database: NaN })],
  ];

  it.each(connections)('by %s: refused where it is given, and nothing is rejected unhandled', async (_what, make) => {
    const REFUSAL = /^Option ".*" has the database .*give a whole number from 0 on/;
    const unhandled = jest.fn();
    process.on('unhandledRejection', unhandled);
    try {
      for (const failFast of [true, false]) {
        await expect(startLockApp({ redis: make(), failFast, cache: false })).rejects.toThrow(REFUSAL);
      }
      await expect(startLockApp({ backend: memory(), cache: { redis: make() } })).rejects.toThrow(REFUSAL);
      expect(() => redis(make())).toThrow(REFUSAL);
      expect(() => redlock([make(), make(), make()])).toThrow(REFUSAL);
      // A connection that was made would have had its answer by the time that another has had this one.
      const other = new Redis(server.url);
      for (let times = 0; times < 3; times++) await other.ping();
      expect(unhandled).not.toHaveBeenCalled();
      other.disconnect();
    } finally {
      process.off('unhandledRejection', unhandled);
    }
  });

  it.each(['', '/', '/0', '/2', '?db=2'])('the URL with "%s" after its host is none', async (end) => {
    await using app = await startLockApp({ redis: `${server.url}${end}`, failFast: true, cache: false });
    await app.locks.withLock('name', async () => {});
  });
});

describe('a keyPrefix that is the beginning of keys of applications without it', () => {
  const at = (keyPrefix: string) => ({ host: '127.0.0.1', port: 6379, keyPrefix, lazyConnect: true });
  const connections: [string, () => RedisConnection][] = [
    ['options', () => at('cache:')],
    ['options, after another part', () => at('shop:cache:')],
    ['a URL', () => 'redis://localhost?keyPrefix=cache%3A'],
    ['a client', () => new Redis(at('cache:eu:'))],
    ['a Cluster', () => new Cluster([at('')], { keyPrefix: 'lock:', lazyConnect: true })],
  ];

  it.each(connections)('by %s: refused where it is given', async (_what, make) => {
    const REFUSAL = /^Option ".*" has the keyPrefix "(\w+:)+"; give one without "(cache|lock)" before a colon/;
    await expect(startLockApp({ redis: make(), cache: false })).rejects.toThrow(REFUSAL);
    await expect(startLockApp({ backend: memory(), cache: { redis: make() } })).rejects.toThrow(REFUSAL);
    expect(() => redis(make())).toThrow(REFUSAL);
    expect(() => redlock([make(), make(), make()])).toThrow(REFUSAL);
  });

  it('is none where no key begins so', () => {
    for (const keyPrefix of ['shop:', 'cache', 'cached:', 'my-cache:'])
      expect(() => redis(at(keyPrefix))).not.toThrow();
  });
});

describe('a command that the server does not have', () => {
  const without = (...commands: string[]) =>
    startRedisServer({ args: commands.flatMap((command) => ['--rename-command', command, `hidden-${command}`]) });
  const refusalOf = (command: string, whose: string) =>
    new RegExp(`refuses commands that ${whose} need: .*${command} \\(.*[Uu]nknown.*renamed or disabled`, 'i');

  it.each([['EVALSHA', 'EVAL'], ['EVALSHA'], ['EVAL'], ['TIME'], ['PEXPIRE'], ['GET'], ['RPUSH']])(
    '%s of the locks is named, and ends the boot with failFast',
    async (...commands) => {
      await using server = await without(...commands);
      const refusal = refusalOf(commands[0] ?? '', 'locks');
      await expect(startLockApp({ redis: server.url, failFast: true, cache: false })).rejects.toThrow(refusal);
      await using app = await startLockApp({ redis: server.url, cache: false });
      await eventually(() => app.logger.matching(refusal).length === 1);
    },
  );

  it.each(['MGET', 'ZADD', 'UNLINK'])('%s of the cache is named', async (command) => {
    await using server = await without(command);
    const started = startLockApp({ redis: server.url, failFast: true, cache: {} });
    await expect(started).rejects.toThrow(refusalOf(command, 'the cache'));
  });

  it.each(['HMGET', 'ZADD', 'SCARD'])(
    '%s of semaphores and latches is named once one of them fails',
    async (command) => {
      await using server = await without(command);
      // The end of the application waits for this long for the permit that is held.
      const shutdownGrace = 0;
      await using app = await startLockApp({ redis: server.url, failFast: true, cache: false, shutdownGrace });
      const refusal = refusalOf(command, 'semaphores and latches');
      await app.locks.withLock('name', async () => {});
      expect(app.logger.lines).toEqual([]);
      const latches = app.app.get(CountDownLatch);
      const using = async () => {
        await app.app.get(SemaphoreService).tryAcquire('name', { permits: 1 });
        await latches.define('name', { count: 1, ttl: '1m' });
        await latches.countDown('name');
        await latches.count('name');
      };
      await expect(using()).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
      await eventually(() => app.logger.matching(refusal).length === 1);
    },
  );

  it.each(['SUBSCRIBE', 'PUBLISH'])('%s is a warning', async (command) => {
    await using server = await without(command);
    await using app = await startLockApp({ redis: server.url, failFast: true, cache: false });
    const refusal = new RegExp(`${refusalOf(command, 'locks').source}.*messages do not arrive`, 'i');
    expect(app.logger.matching(refusal)).toHaveLength(1);
    await app.locks.withLock('name', async () => {});
  });

  it('WAIT matters only where replicas confirm', async () => {
    await using server = await without('WAIT');
    await using app = await startLockApp({ redis: server.url, failFast: true, cache: false });
    await app.locks.withLock('name', async () => {});
    const backend = openBackend(redis(server.url, { minReplicas: 1 }));
    await expect(startLockApp({ backend, failFast: true, cache: false })).rejects.toThrow(refusalOf('WAIT', 'locks'));
  });

  it('is reported by a client of node-redis, by redlock(), and where INFO is refused', async () => {
    await using server = await without('PEXPIRE', 'ACL');
    const client = createClient({ url: server.url });
    client.on('error', () => {});
    await client.connect();
    const started = startLockApp({ redis: client, failFast: true, cache: false });
    await expect(started).rejects.toThrow(refusalOf('PEXPIRE', 'locks'));
    client.destroy();
    await using second = await without('PEXPIRE');
    await using third = await startRedisServer();
    const backend = openBackend(redlock([server.url, second.url, third.url]));
    await expect(startLockApp({ backend, failFast: true, cache: false })).rejects.toThrow(/PEXPIRE \(.*unknown/i);
  });

  it.each(['local', 'open', 'closed'] as const)('is no outage to a rate limit with onFailure %s', async (onFailure) => {
    await using server = await without('EVALSHA');
    await using app = await startLockApp({ redis: server.url, cache: false });
    const limiter = app.app.get(RateLimiter);
    const limits = { limit: 1, per: '1h', onFailure } as const;
    for (let call = 0; call < 5; call++) {
      await expect(limiter.take('key', limits)).rejects.toBeInstanceOf(PrimitiveBackendError);
    }
    await expect(limiter.peek('key', limits)).rejects.toThrow(/unknown command.*renamed or disabled/i);
  });
});
