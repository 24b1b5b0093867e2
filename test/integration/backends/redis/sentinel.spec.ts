import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import {
  CountDownLatch,
  IdempotencyService,
  LeaderElection,
  RateLimiter,
  type RateLimitOptions,
  SemaphoreService,
} from 'nest-redis-lock';
import { eventually } from '../../../support/eventually.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { type RedisSentinel, startRedisSentinel } from '../../../support/servers/redis-sentinel.js';

describe('locks', () => {
  let sentinel: RedisSentinel;
  let apps: LockApp[];

  beforeAll(async () => {
    sentinel = await startRedisSentinel(1_500);
    apps = await Promise.all([1, 2].map(() => startLockApp({ redis: sentinel.options, commandTimeout: 1_000 })));
  });
  afterAll(async () => {
    await Promise.all(apps.map((app) => app.close()));
    await sentinel.stop();
  });

  it('keeps a replicated lock and the readers of another one, and serves who waits for them, after a failover', async () => {
    const [one, two] = apps.map(({ locks }) => locks) as [LockApp['locks'], LockApp['locks']];
    const held = await one.acquire('failover', { ttl: 10_000 });
    const waiting = two.acquire('failover', { wait: 15_000 });
    const readers = await Promise.all([one, two].map((locks) => locks.acquire('read', { ttl: 10_000, mode: 'read' })));
    const writing = one.acquire('read', { wait: 15_000 });
    // Replication is asynchronous: what was not sent yet when the master dies is lost, as the documentation says.
    const replica = new Redis(sentinel.replica.url);
    const keys = ['failover', 'read'].flatMap((name) => [`lock:{${name}}`, `lock:{${name}}:queue`]);
    await eventually(async () => (await replica.exists(...keys)) === keys.length);
    await eventually(async () => (await replica.get('lock:{read}'))?.match(/=/g)?.length === readers.length);
    replica.disconnect();
    await sentinel.master.process.kill();
    await sleep(4_000);
    expect([held, ...readers].map((lock) => lock.held)).toEqual([true, true, true]);
    await Promise.all([held, ...readers].map((lock) => lock.extend()));
    await held.release();
    const next = await waiting;
    expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
    await next.release();
    expect(await one.isLocked('failover')).toBe(false);
    const [first, last] = readers;
    await first?.release();
    // The other reader still holds it, and the writer waits: nobody else comes in.
    for (const mode of ['read', 'write'] as const) expect(await two.tryAcquire('read', { mode })).toBeNull();
    await last?.release();
    const writer = await writing;
    expect(writer.fencingToken).toBeGreaterThan(Math.max(...readers.map(({ fencingToken }) => fencingToken)));
    expect(await two.tryAcquire('read', { mode: 'read' })).toBeNull();
    await writer.release();
    expect(await one.isLocked('read')).toBe(false);
  }, 40_000);

  it('goes on contending on the new master', async () => {
    let inside = 0;
    let most = 0;
    const served = [0, 0];
    const until = performance.now() + 20_000;
    const loop = async ({ locks }: LockApp, index: number) => {
      while (Math.min(...served) <= 10 && performance.now() < until) {
        await locks.withLock('hot', async () => {
          most = Math.max(most, ++inside);
          await sleep(1);
          inside -= 1;
          served[index] = (served[index] ?? 0) + 1;
        });
      }
    };
    await Promise.all(apps.flatMap((app, index) => [1, 2, 3].map(() => loop(app, index))));
    expect(most).toBe(1);
    expect(Math.min(...served)).toBeGreaterThan(10);
  });
});

describe('primitives', () => {
  const FIVE: RateLimitOptions = { limit: 5, per: '1h', onFailure: 'closed' };
  const LONG = '40s';

  let sentinel: RedisSentinel;
  let apps: readonly [LockApp, LockApp];

  beforeAll(async () => {
    sentinel = await startRedisSentinel(1_500);
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
});
