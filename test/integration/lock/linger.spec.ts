import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import {
  IdempotencyService,
  LeaderElection,
  type LockBackend,
  LockConfigError,
  type LockOptions,
  memory,
  ScheduledJobs,
  SemaphoreService,
} from 'nest-redis-lock';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { RecordedEvents } from '../../support/recorded-events.js';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';

let server: RedisServer;
let redis: Redis;
let one: LockApp;
let two: LockApp;

/** Longer than any case waits. */
const LINGER: LockOptions = { ttl: '5m', linger: '4m' };

beforeAll(async () => {
  server = await startRedisServer();
  redis = new Redis(server.url);
  one = await startLockApp({ redis: server.url });
  two = await startLockApp({ redis: server.url });
});
afterAll(async () => {
  await one.close();
  await two.close();
  redis.disconnect();
  await server.stop();
});

/** How many scripts the server has run. */
async function scripts(): Promise<number> {
  const calls = (await redis.info('commandstats')).matchAll(/^cmdstat_(?:eval|evalsha):calls=(\d+)/gm);
  return [...calls].reduce((sum, [, count]) => sum + Number(count), 0);
}

/** Holds the name until it lingers: the first time, the channel for messages opens. */
async function linger(name: string, app = one): Promise<number> {
  for (;;) {
    const token = await app.locks.withLock(name, LINGER, async (lock) => lock.fencingToken);
    if (await redis.exists(`lock:{${name}}`)) return token;
  }
}

it('costs no request where the name is used again', async () => {
  let token = await linger('again');
  // Tokens for the next calls are on their way: a busy server may take a while for them.
  await eventually(async () => {
    const sent = await scripts();
    await one.locks.withLock('again', LINGER, async () => {});
    return (await scripts()) === sent;
  });
  const before = await scripts();
  for (let round = 0; round < 50; round++) {
    await one.locks.withLock('again', LINGER, async (lock) => {
      expect(lock.fencingToken).toBeGreaterThan(token);
      token = lock.fencingToken;
      lock.assertHeld();
    });
    await using lock = await one.locks.tryAcquire('again', LINGER);
    expect(lock?.fencingToken).toBeGreaterThan(token);
    token = lock?.fencingToken ?? 0;
  }
  expect((await scripts()) - before).toBe(0);
  await two.locks.withLock('again', async (lock) => expect(lock.fencingToken).toBeGreaterThan(token));
});

it('is handed over when another process asks, by one request of each', async () => {
  // Its channel for messages is open, so that it queues with its first request.
  await linger('channel', two);
  const token = await linger('wanted');
  const before = await scripts();
  const lock = await two.locks.acquire('wanted', { ttl: '5m' });
  expect(lock.fencingToken).toBeGreaterThan(token);
  // It asks, is granted the name by the release, and renews its claim.
  const requests = (await scripts()) - before;
  expect(requests).toBeLessThanOrEqual(3);
  await lock.release();
});

it('is taken for held elsewhere', async () => {
  const token = await linger('shown');
  expect(await two.locks.isLocked('shown')).toBe(true);
  expect(await one.locks.inspect('shown')).toMatchObject({ waiting: 0 });
  expect((await two.locks.inspect('shown'))?.fencingToken).toBeGreaterThanOrEqual(token);
  expect(await two.locks.tryAcquire('shown')).toBeNull();
  // A call of this process that cannot use it takes it all the same.
  for (const options of [{ order: 'fifo' }, { mode: 'read' }, { wait: 0, order: 'fifo' }] satisfies LockOptions[]) {
    await linger('shown');
    await (await one.locks.acquire('shown', options)).release();
  }
  await linger('shown');
  await (await one.locks.acquire(['shown', 'other'], { wait: 0 })).release();
  expect(await two.locks.isLocked('shown')).toBe(false);
});

it.each(['one', 'two'] as const)('is not used again after a forced release by service %s', async (by) => {
  const token = await linger('forced');
  using events = new RecordedEvents(['lost']);
  const { locks } = by === 'one' ? one : two;
  expect(await locks.forceRelease('forced')).toBe(true);
  if (by === 'two') await eventually(() => one.locks.acquire('seen').then((lock) => lock.release().then(() => true)));
  await using held = await two.locks.acquire('forced');
  expect(held.fencingToken).toBeGreaterThan(token);
  await eventually(async () => (await one.locks.tryAcquire('forced', LINGER)) === null);
  expect(events.all).toEqual([]);
});

it('is given up while messages do not arrive, so that others need not wait for it', async () => {
  await linger('unheard');
  await redis.config('SET', 'maxclients', 1);
  try {
    // Nobody can tell this process any more that another one waits.
    await redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await (await two.locks.acquire('unheard', { wait: 5_000 })).release();
    await one.locks.withLock('unheard', LINGER, async () => {});
    expect(await redis.exists('lock:{unheard}')).toBe(0);
  } finally {
    await redis.config('SET', 'maxclients', 10_000);
  }
  await eventually(() => linger('unheard').then(() => true));
  await (await two.locks.acquire('unheard')).release();
});

it('does not begin before a message has arrived', async () => {
  const proxy = await FaultProxy.start(server.port);
  // As from a proxy that knows SUBSCRIBE, and passes no message on.
  proxy.alterReplies((reply) => (reply.includes('$7\r\nmessage\r\n') ? Buffer.alloc(0) : reply));
  await using deaf = await startLockApp({ redis: `redis://127.0.0.1:${proxy.port}` });
  for (let round = 0; round < 3; round++) {
    await deaf.locks.withLock('deaf', LINGER, () => sleep(20));
    expect(await redis.exists('lock:{deaf}')).toBe(0);
  }
  await deaf.close();
  await proxy.stop();
});

it('is released at once when the application ends', async () => {
  const app = await startLockApp({ redis: server.url, shutdownGrace: '1m' });
  await linger('ending', app);
  await app.close();
  expect(await two.locks.isLocked('ending')).toBe(false);
});

it('is the default of the module where that says so', async () => {
  await using app = await startLockApp({ redis: server.url, defaults: LINGER });
  await linger('default', app);
  await app.locks.withLock('default', async () => {});
  expect(await two.locks.isLocked('default')).toBe(true);
  await app.locks.withLock('default', { linger: 0 }, async () => {});
  expect(await two.locks.isLocked('default')).toBe(false);
  await app.app.get(SemaphoreService).withPermit('permit', { permits: 1 }, async () => {});
});

it('is no default of jobs, candidates and idempotent calls', async () => {
  await using app = await startLockApp({ redis: server.url, defaults: LINGER });
  await linger('default of others', app);
  await app.app.get(ScheduledJobs).run('job', { atMostFor: '1m', atLeastFor: 0 }, async () => {});
  await app.app.get(IdempotencyService).run('call', {}, async () => {});
  const candidacy = app.app.get(LeaderElection).join('boss');
  await eventually(() => candidacy.isLeader);
  await candidacy.leave();
  expect(await redis.keys('lock:{*:*}')).toEqual([]);
  // Again: a lock that lingers is given back where messages may have been missed, as in a standstill.
  await linger('default of others', app);
});

it('ends after its time, counted from the release', async () => {
  const short = { linger: '300ms' } as const;
  await linger('short');
  await one.locks.withLock('short', short, async () => {});
  expect(await two.locks.isLocked('short')).toBe(true);
  await eventually(async () => !(await two.locks.isLocked('short')));
});

it('has no effect in memory, where a free lock takes no request', async () => {
  const backend = memory();
  await using app = await startLockApp({ backend, defaults: LINGER });
  await using other = await startLockApp({ backend });
  await app.locks.withLock('memory', async () => {});
  await app.locks.withLock('memory', async () => {});
  await using lock = await other.locks.acquire('memory', { wait: 0 });
  expect(lock.held).toBe(true);
});

it('is refused on a backend that does not tell who waits', async () => {
  const silent: LockBackend = Object.defineProperty(memory(), 'name', { value: 'silent' });
  await using app = await startLockApp({ backend: silent });
  const message =
    'Option "linger" is 240000, but backend "silent" does not tell who waits for a name; leave it out, or give 0';
  await expect(app.locks.acquire('a', LINGER)).rejects.toEqual(new LockConfigError(message));
});

it.each([[-1], ['soon'], [Infinity]])('refuses %s as "linger"', async (value) => {
  const call = one.locks.acquire('a', { linger: value } as LockOptions);
  await expect(call).rejects.toThrow(
    /Option "linger" is "?(-1|soon|Infinity)"?; give milliseconds \(0 or more|from 0 to/,
  );
});
