import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, Redis } from 'ioredis';
import { CacheService, CountDownLatch, RateLimiter, SemaphoreService, type RedisConnection } from 'nest-redis-lock';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp } from '../../support/lock-app.js';
import { startRedisCluster } from '../../support/servers/redis-cluster.js';

/** The permissions that docs/guide/redis.md lists: of the locks, and of the cache. */
const PAGE = readFileSync(new URL('../../../docs/guide/redis.md', import.meta.url), 'utf8');
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

async function useEverything(redis: RedisConnection, cacheRedis: RedisConnection, bus: 'tracking' | 'pubsub') {
  await using app = await startLockApp({
    redis,
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
  const permit = await semaphores.acquire('{a}x', { permits: 1, ttl: 300 });
  const queued = semaphores.acquire('{a}x', { permits: 1, wait: 10_000 });
  // Meanwhile, leases are renewed, and a heartbeat is sent.
  await sleep(600);
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
  await bloom.rebuild(() => ['1', '2']);
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
