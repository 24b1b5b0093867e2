import {
  CacheService,
  IdempotencyService,
  LockService,
  RateLimiter,
  ScheduledJobs,
  SemaphoreService,
} from 'nest-redis-lock';

const HOUR = '1h';
const RELEASE = 'if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0';

/** What a row is compared with. */
export const PING = 'PING';
export const BARE_LOCK = 'SET NX + EVALSHA, bare';
export const BARE_CACHE = 'GET + SET, bare';

const body = async () => {};
const load = async () => ({ id: 7, name: 'seven' });

/**
 * What is measured: `call` takes the number of the round. What `prepare` does before it is not measured. `client` is
 * one of ioredis; the applications have services of their own.
 */
export function rowsOf(client, app, other) {
  const locks = app.get(LockService);
  return [...bareRows(client), ...lockRows(locks, other.get(LockService)), ...cacheRows(app), ...primitiveRows(app)];
}

function bareRows(client) {
  client.defineCommand('releaseBare', { numberOfKeys: 1, lua: RELEASE });
  return [
    { title: PING, call: () => client.ping() },
    {
      title: BARE_LOCK,
      async call(round) {
        await client.set(`bare-${round}`, 'me', 'PX', 30_000, 'NX');
        await client.releaseBare(`bare-${round}`, 'me');
      },
    },
    {
      title: BARE_CACHE,
      async call(round) {
        await client.get(`bare-value-${round}`);
        await client.set(`bare-value-${round}`, JSON.stringify(await load()), 'PX', 3_600_000);
      },
    },
  ];
}

function lockRows(locks, others) {
  const lingering = (name) => locks.withLock(name, { linger: '100ms' }, body);
  return [
    { title: 'lock', call: (round) => locks.withLock(`lock-${round}`, body) },
    { title: 'lock, the same name again', call: () => locks.withLock('again', body) },
    {
      title: 'lock, three names',
      call: (round) =>
        locks.withLock(
          ['a', 'b', 'c'].map((part) => `{three-${round}}${part}`),
          body,
        ),
    },
    {
      title: "lock, release: 'background'",
      call: (round) => locks.withLock(`background-${round}`, { release: 'background' }, body),
    },
    {
      title: "lock, three names, release: 'background'",
      call: (round) =>
        locks.withLock(
          ['a', 'b', 'c'].map((part) => `{background-${round}}${part}`),
          { release: 'background' },
          body,
        ),
    },
    {
      title: "lock, linger: '100ms', used again",
      prepare: () => lingering('lingers'),
      call: () => lingering('lingers'),
    },
    {
      title: "lock, linger: '100ms', wanted elsewhere, until held",
      prepare: (round) => lingering(`wanted-${round}`),
      call: (round) =>
        new Promise((held, failed) => {
          others.withLock(`wanted-${round}`, async () => held()).catch(failed);
        }),
    },
  ];
}

/** Hits and misses in namespaces of their own: the cache may learn which of them a read will be. */
function cacheRows(app) {
  const cache = app.get(CacheService);
  const missOf = (namespace, options) => {
    const misses = cache.namespace(namespace);
    return (round) => misses.getOrSet(`product-${round}`, load, { ttl: HOUR, ...options });
  };
  const hits = cache.namespace('hits');
  const changes = cache.namespace('changes');
  return [
    { title: 'cached hit', call: () => hits.getOrSet('product', load, { ttl: HOUR }) },
    { title: 'set', call: (round) => changes.set(`set-${round}`, 1, { ttl: HOUR }) },
    {
      title: 'invalidate',
      prepare: (round) => changes.set(`stored-${round}`, 1, { ttl: HOUR }),
      call: (round) => changes.invalidate(`stored-${round}`),
    },
    { title: 'cold miss', call: missOf('misses', {}) },
    { title: 'cold miss, with tags', call: missOf('tagged', { tags: ['products', 'shop-1'] }) },
    { title: "cold miss, consistency: 'strong'", call: missOf('strong', { consistency: 'strong' }) },
  ];
}

function primitiveRows(app) {
  const [semaphores, limiter, calls, jobs] = [SemaphoreService, RateLimiter, IdempotencyService, ScheduledJobs].map(
    (type) => app.get(type),
  );
  return [
    { title: 'semaphore permit', call: () => semaphores.withPermit('permits', { permits: 8 }, body) },
    {
      title: "semaphore permit, release: 'background'",
      call: () => semaphores.withPermit('permits-background', { permits: 8, release: 'background' }, body),
    },
    { title: 'rate limit', call: () => limiter.take('limit', { limit: 1_000_000, per: '1m' }) },
    { title: 'idempotent call', call: (round) => calls.run(`payment-${round}`, { ttl: HOUR }, load) },
    {
      title: 'scheduled job',
      call: (round) => jobs.run(`job-${round}`, { atMostFor: '10m', atLeastFor: '30s' }, body),
    },
  ];
}
