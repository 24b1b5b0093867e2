import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, Redis } from 'ioredis';
import {
  CacheService,
  CountDownLatch,
  LockBackendError,
  memory,
  RateLimiter,
  redis,
  type RedisConnection,
  type RedisLockModuleOptions,
  SemaphoreService,
} from 'nest-redis-lock';
import { rightsOfCache } from '../../../../lib/backends/redis/cache/redis-cache-keys.js';
import { LockKeys } from '../../../../lib/backends/redis/locks/redis-lock-keys.js';
import { eventually } from '../../../support/eventually.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { type RedisCluster, startRedisCluster } from '../../../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('the check at the start', () => {
  /** As docs/guide/redis.md gives it. */
  const LOCK_COMMANDS =
    '+evalsha +eval +ping +info +subscribe +publish +time +get +set +del +exists +pexpire +pttl +llen +lindex +linsert +lpos +lrem ' +
    '+rpush +hget +hset +hdel +hlen +hexists';
  const CACHE_COMMANDS =
    '+evalsha +eval +ping +info +subscribe +publish +time +get +mget +set +del +unlink +exists +pexpire +pexpireat +persist ' +
    '+pttl +incrby +rename +scan +sadd +srem +sismember +smembers +zadd +zrem +zcard +zscore +zrange +zrangebyscore ' +
    '+zremrangebyscore +getbit +setbit +getrange +strlen';

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

  async function user(name: string, rights: string, on = admin): Promise<void> {
    await on.call('ACL', 'SETUSER', name, 'reset', 'on', '>pw', '-@all', ...rights.split(' '));
  }

  function as(name: string, more: Partial<RedisLockModuleOptions> = {}): RedisLockModuleOptions {
    const connection = { host: '127.0.0.1', port: server.port, username: name, password: 'pw' };
    return { redis: connection, prefix: 'shop', cache: false, ...more };
  }

  /** The only line, once everything has been looked at. */
  async function onlyLine({ logger }: LockApp): Promise<string> {
    await eventually(() => logger.lines.length > 0);
    expect(logger.lines).toHaveLength(1);
    return logger.lines[0]?.text ?? '';
  }

  describe('eviction', () => {
    beforeEach(() => admin.config('SET', 'maxmemory', '100mb'));
    afterEach(async () => {
      await admin.config('SET', 'maxmemory', '0');
      await admin.config('SET', 'maxmemory-policy', 'noeviction');
    });

    it.each(['allkeys-lru', 'volatile-ttl'])(
      'under %s is a warning with the remedy, also with failFast',
      async (policy) => {
        await admin.config('SET', 'maxmemory-policy', policy);
        await using app = await startLockApp({ redis: server.url, failFast: true, cache: false });
        const line = await onlyLine(app);
        expect(line).toContain(`Redis at 127.0.0.1:${server.port} may evict held locks`);
        expect(line).toMatch(new RegExp(`is ${policy}: set it to noeviction`));
        expect(await app.locks.withLock('works', async () => 'ran')).toBe('ran');
      },
    );

    it('is a matter for debug where no maxmemory is set, as nothing is evicted then', async () => {
      await admin.config('SET', 'maxmemory', '0');
      await admin.config('SET', 'maxmemory-policy', 'allkeys-lru');
      await using app = await startLockApp({ redis: server.url, cache: false });
      await eventually(() =>
        app.logger.details.some((line) => /has no maxmemory and evicts nothing; with one it may evict/.test(line)),
      );
      expect(app.logger.lines).toEqual([]);
    });

    it('is reported for further backends, but not for a cache', async () => {
      await admin.config('SET', 'maxmemory-policy', 'allkeys-lfu');
      const backends = { other: redis(server.url) };
      await using app = await startLockApp({
        backend: memory(),
        backends,
        cache: { redis: server.url },
        failFast: true,
      });
      expect(await onlyLine(app)).toMatch(/may evict held locks/);
    });

    it('is a matter for debug where INFO is refused', async () => {
      await user('blind', `~shop:* &shop:* ${LOCK_COMMANDS.replace('+info ', '')}`);
      await using app = await startLockApp(as('blind'));
      await eventually(() =>
        app.logger.details.some((line) => /does not tell whether it may evict locks: .*NOPERM/.test(line)),
      );
      expect(app.logger.lines).toEqual([]);
    });
  });

  describe('a user with exactly the rights that the documentation lists', () => {
    it('is warned of nothing', async () => {
      await user('exact', `~shop:lock:{* &shop:lock:process:* ${LOCK_COMMANDS}`);
      await admin.call('ACL', 'LOG', 'RESET');
      await using app = await startLockApp(as('exact', { failFast: true }));
      const held = await app.locks.acquire('x');
      const waiting = app.locks.acquire('x', { wait: 5_000 });
      await eventually(async () => (await app.locks.inspect('x'))?.waiting === 1);
      await held.extend();
      await held.release();
      await (await waiting).release();
      await app.locks.withLock(['a', 'b'], async () => {});
      expect(await app.locks.forceRelease('nobody')).toBe(false);
      expect(app.logger.lines).toEqual([]);
      const log = ((await admin.call('ACL', 'LOG')) as unknown[][]).map((entry) => entry.map(String));
      const refused = log.filter((entry) => entry.includes('exact')).map((entry) => entry[7] ?? '');
      // What it asks for, to know more, where it may.
      expect(refused.filter((command) => !/^(acl|client)/.test(command))).toEqual([]);
    });
  });

  describe('a missing right', () => {
    const vital = LOCK_COMMANDS.split(' ').filter(
      (right) => !['+info', '+subscribe', '+publish', '+ping'].includes(right),
    );

    it.each(vital)('%s is named in one line with the remedy, and ends the boot with failFast', async (right) => {
      await user('less', `~shop:lock:{* &shop:lock:process:* ${LOCK_COMMANDS} -${right.slice(1)}`);
      await using app = await startLockApp(as('less'));
      const line = await onlyLine(app);
      expect(line).toContain(`Redis at 127.0.0.1:${server.port}: its ACL user "less" lacks rights needed for locks`);
      expect(line).toContain(`ACL SETUSER less ${right}`);
      await expect(startLockApp(as('less', { failFast: true }))).rejects.toBeInstanceOf(LockBackendError);
    });

    const vitalToCache = CACHE_COMMANDS.split(' ').filter(
      (right) => !['+info', '+subscribe', '+publish', '+ping'].includes(right),
    );

    it.each(vitalToCache)('%s of the cache is named in one line with the remedy', async (right) => {
      await user(
        'less',
        `~shop:cache* ~shop:lease:* ~shop:barrier:* &shop:cache:bus* ${CACHE_COMMANDS} -${right.slice(1)}`,
      );
      const { redis: connection } = as('less');
      await using app = await startLockApp({
        backend: memory(),
        prefix: 'shop',
        cache: { redis: connection as object },
      });
      const problem = `lacks rights needed for the cache; run ACL SETUSER less ${right}`;
      await eventually(() => app.logger.lines.some(({ text }) => text.includes(problem)));
    });

    it('for keys of the cache is named with their patterns', async () => {
      await user('elsewhere', `~other:* &shop:cache:bus* ${CACHE_COMMANDS}`);
      const { redis: connection } = as('elsewhere');
      await using app = await startLockApp({
        backend: memory(),
        prefix: 'shop',
        cache: { redis: connection as object },
      });
      const remedy = 'ACL SETUSER elsewhere ~shop:cache* ~shop:lease:* ~shop:barrier:*';
      await eventually(() => app.logger.lines.some(({ text }) => text.includes(remedy)));
    });

    it('for the keys is named with their pattern', async () => {
      await user('elsewhere', `~other:* &shop:lock:process:* ${LOCK_COMMANDS}`);
      await using app = await startLockApp(as('elsewhere'));
      expect(await onlyLine(app)).toContain('ACL SETUSER elsewhere ~shop:lock:{*');
    });

    it.each([
      ['for the channel', `&other ${LOCK_COMMANDS}`, '&shop:lock:process:*'],
      ['to subscribe', `&shop:lock:process:* ${LOCK_COMMANDS.replace('+subscribe ', '')}`, '+subscribe'],
      ['to publish', `&shop:lock:process:* ${LOCK_COMMANDS.replace('+publish ', '')}`, '+publish'],
    ])('%s is a warning', async (_what, rights, remedy) => {
      await user('mute', `~shop:lock:{* ${rights}`);
      await using app = await startLockApp(as('mute', { failFast: true }));
      expect(await onlyLine(app)).toContain(`ACL SETUSER mute ${remedy}`);
    });

    it('of the cache is reported for the cache', async () => {
      await user('locks-only', `~shop:lock:{* &shop:lock:process:* ${LOCK_COMMANDS}`);
      const { redis: connection } = as('locks-only');
      await using app = await startLockApp({
        redis: server.url,
        prefix: 'shop',
        cache: { redis: connection as object },
      });
      await eventually(
        () => app.logger.matching(/lacks rights needed for the cache.*the cache loads every value/).length === 1,
      );
      expect(await app.app.get(CacheService).getOrSet('k', async () => 1)).toBe(1);
    });
  });

  it('passes where a hash tag in the "keyPrefix" of the client keeps all keys in one slot', async () => {
    const connection = { host: '127.0.0.1', port: server.port, keyPrefix: '{shop}:' };
    await using app = await startLockApp({ redis: connection, failFast: true });
    await app.locks.withLock(['one', 'two'], async () => {});
    expect(app.logger.lines).toEqual([]);
  });

  it('a read-only server is named with the remedy', async () => {
    await using replica = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(server.port)] });
    await using app = await startLockApp({ redis: replica.url, cache: false });
    await eventually(
      () => app.logger.matching(/READONLY.*it is a replica: give the address of the primary/).length === 1,
    );
    await expect(startLockApp({ redis: replica.url, failFast: true })).rejects.toThrow(`127.0.0.1:${replica.port}`);
  });

  describe('of a Cluster', () => {
    let cluster: RedisCluster;
    beforeAll(async () => {
      cluster = await startRedisCluster();
    }, 30_000);
    afterAll(() => cluster.stop());

    it('each master is looked at', async () => {
      for (const [index, { url }] of cluster.servers.entries()) {
        const node = new Redis(url);
        await user(
          'app',
          `~shop:lock:{* &shop:lock:process:* ${LOCK_COMMANDS} +cluster${index === 1 ? ' -pexpire' : ''}`,
          node,
        );
        if (index === 2) {
          await node.config('SET', 'maxmemory', '100mb');
          await node.config('SET', 'maxmemory-policy', 'allkeys-lru');
        }
        node.disconnect();
      }
      const client = new Cluster(
        cluster.servers.map(({ port }) => ({ host: '127.0.0.1', port })),
        { redisOptions: { username: 'app', password: 'pw' } },
      );
      await using app = await startLockApp({ redis: client, prefix: 'shop', cache: false });
      const [, second, third] = cluster.servers;
      await eventually(() => app.logger.matching(/starts without it/).length === 1);
      expect(app.logger.matching(new RegExp(`127.0.0.1:${second?.port}: .*ACL SETUSER app \\+pexpire;?`))).toHaveLength(
        1,
      );
      expect(app.logger.matching(new RegExp(`127.0.0.1:${third?.port} may evict`))).toHaveLength(1);
      client.disconnect();
    });
  });

  /** The text of every script below a folder of the Redis backend. */
  function scriptsBelow(path: string): string[] {
    const folder = new URL(`../../../../lib/backends/redis/${path}/`, import.meta.url);
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.lua.ts'));
    return files.map((file) => readFileSync(new URL(file, folder), 'utf8'));
  }

  it.each([
    ['locks', new LockKeys(undefined).rights(), LOCK_COMMANDS, 17],
    ['cache', rightsOfCache(undefined), CACHE_COMMANDS, 24],
  ] as const)(
    'tries every command of the documentation and of the scripts of %s',
    (folder, { probes }, documented, least) => {
      const texts = scriptsBelow(folder);
      const used = new Set(
        texts.flatMap((text) => [...text.matchAll(/redis\.p?call\('([A-Z]+)'/g)].map(([, name]) => name)),
      );
      expect(used.size).toBeGreaterThanOrEqual(least);
      // The probe itself needs these, or they are tried by other means.
      const tried = new Set([
        ...probes.map(([name]) => name),
        'PUBLISH',
        'SUBSCRIBE',
        'EVAL',
        'EVALSHA',
        'PING',
        'INFO',
      ]);
      expect([...used].filter((name) => !tried.has(name as string))).toEqual([]);
      expect(documented.split(' ').filter((right) => !tried.has(right.slice(1).toUpperCase()))).toEqual([]);
      expect([...tried].filter((name) => !documented.includes(`+${name.toLowerCase()}`))).toEqual([]);
    },
  );
});

/** The permissions that docs/guide/redis.md lists: of the locks, and of the cache. */
const PAGE = readFileSync(new URL('../../../../docs/guide/redis.md', import.meta.url), 'utf8');
const [LOCKS = '', CACHE = ''] = Array.from(
  PAGE.matchAll(/^ACL SETUSER \S+ on >password -@all ([^`]+)/gm),
  ([, rights = '']) => rights.trim().replaceAll(/\s+/g, ' '),
);
/** And of what is built on locks, besides those of the locks. */
const MORE = Array.from(PAGE.matchAll(/^ACL SETUSER shop (~[^`]+)/gm), ([, rights = '']) =>
  rights.trim().replaceAll(/\s+/g, ' '),
).join(' ');
const TRACKING = '&__redis__:invalidate +client|id +client|tracking';

async function users(url: string, more = ''): Promise<void> {
  const admin = new Redis(url);
  for (const [name, rights] of Object.entries({
    locks: `${LOCKS} ${MORE}${more}`,
    cache: `${CACHE} ${TRACKING}${more}`,
  })) {
    await admin.call('ACL', 'SETUSER', name, 'reset', 'on', '>pw', '-@all', ...rights.split(' '));
  }
  await admin.call('ACL', 'LOG', 'RESET');
  admin.disconnect();
}

/** What was refused, but what clients and the library only ask to know more. */
async function refusedOn(url: string): Promise<string[]> {
  const admin = new Redis(url);
  const log = ((await admin.call('ACL', 'LOG')) as unknown[][]).map((entry) => entry.map(String));
  admin.disconnect();
  return log
    .map((entry) => `${entry[9]}: ${entry[7]}`)
    .filter((line) => !/: (acl|client\|set(info|name)|command)/.test(line));
}

async function useEverything(locksRedis: RedisConnection, cacheRedis: RedisConnection, bus: 'tracking' | 'pubsub') {
  await using app = await startLockApp({
    redis: locksRedis,
    prefix: 'shop',
    label: 'here',
    failFast: true,
    cache: { redis: cacheRedis, l1: { max: 10, ttl: 10_000, bus }, defaults: { onRedisError: 'throw' } },
  });
  const { locks } = app;
  const held = await locks.acquire('{a}x');
  const waiting = locks.acquire('{a}x', { wait: 10_000 });
  await eventually(async () => (await locks.inspect('{a}x'))?.waiting === 1);
  await held.extend();
  await held.release();
  const next = await waiting;
  expect(await locks.forceRelease('{a}x')).toBe(true);
  await next.release().catch(() => {});
  await locks.withLock(['{a}y', '{a}z'], async () => {});

  const limiter = app.app.get(RateLimiter);
  const limits = { limit: 1, per: '1h', onFailure: 'closed' } as const;
  for (const allowed of [true, false]) expect(await limiter.take('key', limits)).toMatchObject({ allowed });
  expect(await limiter.peek('key', limits)).toMatchObject({ allowed: false });
  await limiter.reset('key', limits);
  const storage = limiter.throttlerStorage({ onFailure: 'closed' });
  for (const isBlocked of [false, true, true]) {
    expect(await storage.increment('key', 60_000, 1, 60_000, 'default')).toMatchObject({ isBlocked });
  }

  const [semaphores, latches] = [app.app.get(SemaphoreService), app.app.get(CountDownLatch)];
  const permit = await semaphores.acquire('{a}x', { permits: 1, ttl: 3_000 });
  const queued = semaphores.acquire('{a}x', { permits: 1, wait: 60_000 });
  // Meanwhile, leases are renewed, and a heartbeat is sent.
  for (let renewals = 0; renewals < 2; renewals++) {
    let last = permit.remaining();
    await eventually(() => {
      const before = last;
      last = permit.remaining();
      return last > before;
    });
  }
  expect(await semaphores.available('{a}x')).toBe(0);
  await permit.release();
  await (await queued).release();
  await latches.define('{a}x', { count: 1, ttl: '1m' });
  const opened = latches.await('{a}x', { wait: 10_000 });
  await sleep(50);
  await latches.countDown('{a}x');
  await opened;

  const cache = app.app.get(CacheService);
  expect(await cache.getOrSet('key', async () => 1, { tags: ['tag'] })).toBe(1);
  await cache.set('key', 2, { tags: ['tag'] });
  expect(await cache.getOrSetMany(['key', 'other'], async (keys) => new Map(keys.map((key) => [key, 3])))).toHaveLength(
    2,
  );
  await cache.incr('count', 1, { ttl: 10_000 });
  await cache.expire('count', 10_000);
  expect(await cache.ttl('count')).not.toBeNull();
  await cache.mutate('key', async () => {});
  await cache.doubleDelete('key', async () => {}, { delay: 1 });
  await cache.doubleDeleteByPrefix('ke', async () => {}, { delay: 1 });
  await cache.invalidate('key', { barrier: 100 });
  await cache.deleteByTag('tag');
  await cache.deleteByPrefix('oth');
  await cache.sets.add('set', ['a', 'b'], { ttl: 10_000 });
  await cache.sets.add('endless', ['a'], { ttl: Infinity });
  await cache.sets.remove('set', ['b']);
  expect([await cache.sets.has('set', 'a'), await cache.sets.members('set')]).toEqual([true, ['a']]);
  await cache.expiringSet.add('set', ['a', 'b'], 10_000);
  await cache.expiringSet.remove('set', ['b']);
  expect([await cache.expiringSet.size('set'), await cache.expiringSet.has('set', 'a')]).toEqual([1, true]);
  expect(await cache.expiringSet.members('set')).toEqual(['a']);
  expect(await cache.pipeline().set('p', 1).get('p').exec()).toEqual([undefined, 1]);
  const bloom = cache.bloomFilter('ids', { capacity: 100, errorRate: 0.01 });
  await bloom.rebuild(() => ['1', '2'], { settle: 0 });
  await bloom.add('3');
  expect(await bloom.mayHave('1')).toBe(true);
  await bloom.clear();
  const unforced = app.logger.lines
    .map(({ text }) => text)
    .filter((text) => !text.startsWith('Lock "{a}x" lost (taken)'));
  expect(unforced).toEqual([]);
}

it('users with the rights that the documentation lists may use everything', async () => {
  await using server = await startRedisServer();
  await users(server.url);
  const as = (username: string) => ({ host: '127.0.0.1', port: server.port, username, password: 'pw' });
  await useEverything(as('locks'), as('cache'), 'tracking');
  expect(await refusedOn(server.url)).toEqual([]);
});

it('also on a Cluster, with what it needs there', async () => {
  const cluster = await startRedisCluster();
  try {
    for (const { url } of cluster.servers) await users(url, ' +cluster');
    const nodes = cluster.servers.map(({ port }) => ({ host: '127.0.0.1', port }));
    const as = (username: string) =>
      new Cluster(nodes, { redisOptions: { username, password: 'pw' } }).on('error', () => {});
    const clients = [as('locks'), as('cache')] as const;
    await useEverything(clients[0], clients[1], 'pubsub');
    for (const client of clients) client.disconnect();
    for (const { url } of cluster.servers) expect(await refusedOn(url)).toEqual([]);
  } finally {
    await cluster.stop();
  }
}, 60_000);
