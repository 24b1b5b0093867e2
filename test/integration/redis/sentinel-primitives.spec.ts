import { Redis } from 'ioredis';
import {
  CountDownLatch,
  IdempotencyService,
  LeaderElection,
  RateLimiter,
  SemaphoreService,
  type RateLimitOptions,
} from 'nest-redis-lock';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startRedisSentinel, type RedisSentinel } from '../../support/servers/redis-sentinel.js';

const FIVE: RateLimitOptions = { limit: 5, per: '1h', onFailure: 'closed' };
const LONG = '40s';

let sentinel: RedisSentinel;
let apps: readonly [LockApp, LockApp];

beforeAll(async () => {
  sentinel = await startRedisSentinel();
  const start = () => startLockApp({ redis: sentinel.options, commandTimeout: 1_000 });
  apps = [await start(), await start()];
});
afterAll(async () => {
  for (const app of apps) await app.close();
  await sentinel.stop();
});

it('primitives keep what was replicated, and serve those that wait, after a failover', async () => {
  const [one, two] = apps.map(({ app }) => ({
    semaphores: app.get(SemaphoreService),
    latches: app.get(CountDownLatch),
    limiter: app.get(RateLimiter),
    results: app.get(IdempotencyService),
    leaders: app.get(LeaderElection),
  })) as [Services, Services];
  const permit = await one.semaphores.acquire('failover', { permits: 1, ttl: LONG });
  const next = two.semaphores.acquire('failover', { permits: 1, wait: LONG });
  await one.latches.define('failover', { count: 2, ttl: '1m' });
  await one.latches.countDown('failover', 'first');
  const opened = two.latches.await('failover', { wait: LONG });
  expect(await one.limiter.take('failover', { ...FIVE, cost: 3 })).toMatchObject({ allowed: true, remaining: 2 });
  expect(await one.results.run('failover', {}, async () => 'first')).toBe('first');
  one.leaders.join('failover', { lease: LONG });
  await eventually(() => one.leaders.isLeader('failover'));
  const term = one.leaders.candidacy('failover')?.term;
  two.leaders.join('failover', { lease: LONG });

  const master = new Redis(sentinel.master.url);
  await eventually(async () => (await master.zcard('semaphore:{failover}:queue')) === 1);
  await eventually(async () => (await master.llen('lock:{leader:failover}:queue')) === 1);
  // Replication is asynchronous, and keeps the order of the writes.
  await master.set('last', 'write', 'EX', 60);
  expect(await master.wait(1, 10_000)).toBe(1);
  master.disconnect();
  await sentinel.master.process.kill();

  // The new master answers.
  await eventually(() => two.limiter.peek('failover', FIVE).catch(() => undefined), { within: 30_000 });
  expect(await two.limiter.take('failover', { ...FIVE, cost: 3 })).toMatchObject({ allowed: false, remaining: 2 });
  expect(await two.results.run('failover', {}, async () => 'again')).toBe('first');
  expect(await two.latches.countDown('failover', 'first')).toBe(1);
  expect(await one.latches.countDown('failover', 'second')).toBe(0);
  await opened;
  expect(permit.held).toBe(true);
  await permit.release();
  const held = await next;
  expect(held.fencingToken).toBeGreaterThan(permit.fencingToken);
  await held.release();
  expect(await one.semaphores.available('failover')).toBe(1);
  expect(one.leaders.candidacy('failover')?.term).toBe(term);
  await one.leaders.candidacy('failover')?.leave();
  await eventually(() => two.leaders.isLeader('failover'), { within: 30_000 });
  expect(two.leaders.candidacy('failover')?.term).toBeGreaterThan(term as number);
}, 90_000);

interface Services {
  readonly semaphores: SemaphoreService;
  readonly latches: CountDownLatch;
  readonly limiter: RateLimiter;
  readonly results: IdempotencyService;
  readonly leaders: LeaderElection;
}
