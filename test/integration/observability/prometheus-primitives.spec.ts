import 'reflect-metadata';
import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  CountDownLatch,
  Idempotent,
  LeaderElection,
  LockService,
  memory,
  RateLimit,
  RateLimiter,
  RedisLockModule,
  ScheduledJobs,
  ScheduledLock,
  Semaphore,
  SemaphoreService,
  type LockBackend,
} from 'nest-redis-lock';
import { RedisLockMetricsModule, type MetricsOptions } from 'nest-redis-lock/prometheus';
import { Registry } from 'prom-client';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { away } from '../../support/one-redis.js';
import { primitivesWith } from '../../support/primitives-with.js';

@Injectable()
class Shop {
  @Semaphore('report:<0>', { permits: 2, count: 2, wait: 0 })
  async report(_id: number, body: () => Promise<void> = async () => {}): Promise<void> {
    await body();
  }

  @ScheduledLock('nightly', { atMostFor: '1m', atLeastFor: 0 })
  async nightly(body: () => Promise<void> = async () => {}): Promise<void> {
    await body();
  }

  @Idempotent('order:<0>')
  async order(id: number): Promise<number> {
    if (id < 0) throw new Error('no stock');
    return id;
  }

  @RateLimit('user:<0>', { limit: 1, per: '1h', onLimit: 'skip' })
  async login(_user: string): Promise<void> {}
}

async function start({ backend = memory(), ...options }: Partial<MetricsOptions> & { backend?: LockBackend } = {}) {
  const registry = new Registry();
  const module = await Test.createTestingModule({
    imports: [
      RedisLockModule.forRoot({ backend, shutdownGrace: 0 }),
      RedisLockMetricsModule.forRoot({ registry, ...options }),
    ],
    providers: [Shop],
  }).compile();
  const app = await module.init();
  /** The value of a sample in the text that Prometheus scrapes; `of` is its template. */
  const sample = async (name: string, of: string, further = '') => {
    const text = await registry.metrics();
    const series = `nest_redis_${name}{template="${of}",backend="memory"${further}} `;
    const line = text.split('\n').find((each) => each.startsWith(series));
    return line === undefined ? undefined : Number(line.split(' ').at(-1));
  };
  const close = () => app.close();
  return { app, registry, shop: app.get(Shop), sample, close, [Symbol.asyncDispose]: close };
}

it('the metrics of semaphores add up: attempts are acquired, failed, or still waiting', async () => {
  await using app = await start();
  const { shop, sample } = app;
  const of = 'report:<0>';
  const gate = new Gate();
  const held = shop.report(1, () => gate.opened);
  await eventually(async () => (await sample('semaphore_held', of)) === 2);
  await expect(shop.report(1)).rejects.toThrow();
  const semaphores = app.app.get(SemaphoreService);
  const waiting = semaphores.acquire('report:1', { permits: 2, wait: '30s' });
  await eventually(async () => (await sample('semaphore_waiting', 'none')) === 1);
  gate.open();
  await held;
  const permit = await waiting;
  expect(await sample('semaphore_held', 'none')).toBe(1);
  await permit.release();
  expect(await sample('semaphore_attempts_total', of)).toBe(2);
  expect(await sample('semaphore_acquired_total', of)).toBe(1);
  expect(await sample('semaphore_failed_total', of, ',reason="timeout"')).toBe(1);
  expect(await sample('semaphore_contended_total', of)).toBe(1);
  expect(await sample('semaphore_released_total', of)).toBe(1);
  expect(await sample('semaphore_lost_total', of, ',reason="expired"')).toBe(0);
  expect(await sample('semaphore_wait_seconds_count', of)).toBe(1);
  expect(await sample('semaphore_hold_seconds_count', of)).toBe(1);
  for (const template of [of, 'none']) {
    expect(await sample('semaphore_held', template)).toBe(0);
    expect(await sample('semaphore_waiting', template)).toBe(0);
  }
});

it('the metrics of latches count arrivals and waits, by how these ended', async () => {
  await using app = await start();
  const { sample } = app;
  const latches = app.app.get(CountDownLatch);
  await latches.define('import', { count: 1, ttl: '1m' });
  await latches.await('import', { wait: 0 }).catch(() => {});
  const opened = latches.await('import');
  await latches.countDown('import');
  await opened;
  expect(await sample('latch_arrivals_total', 'none')).toBe(1);
  expect(await sample('latch_opened_total', 'none')).toBe(1);
  expect(await sample('latch_failed_total', 'none', ',reason="timeout"')).toBe(1);
  expect(await sample('latch_wait_seconds_count', 'none')).toBe(1);
});

it('the metrics of scheduled jobs count runs, skipped calls, and tell the last success', async () => {
  const backend = memory();
  await using app = await start({ backend });
  const { shop, sample } = app;
  const before = Date.now() / 1_000;
  const gate = new Gate();
  const running = shop.nightly(() => gate.opened);
  await eventually(async () => (await sample('schedule_running', 'nightly')) === 1);
  await shop.nightly();
  expect(await sample('schedule_last_success_timestamp_seconds', 'nightly')).toBe(0);
  gate.open();
  await running;
  await shop.nightly(away).catch(() => {});
  backend.acquire = away;
  await shop.nightly().catch(() => {});
  expect(await sample('schedule_running', 'nightly')).toBe(0);
  expect(await sample('schedule_runs_total', 'nightly', ',outcome="succeeded"')).toBe(1);
  expect(await sample('schedule_runs_total', 'nightly', ',outcome="failed"')).toBe(1);
  expect(await sample('schedule_skipped_total', 'nightly')).toBe(1);
  expect(await sample('schedule_unavailable_total', 'nightly')).toBe(1);
  expect(await sample('schedule_run_seconds_count', 'nightly')).toBe(2);
  const last = (await sample('schedule_last_success_timestamp_seconds', 'nightly')) as number;
  expect(last).toBeGreaterThanOrEqual(before);
  expect(last).toBeLessThanOrEqual(Date.now() / 1_000);
});

it('the metrics of idempotent methods count calls by what they got', async () => {
  await using app = await start();
  const { shop, sample } = app;
  for (let time = 0; time < 3; time++) await shop.order(7);
  for (let time = 0; time < 2; time++) await shop.order(-1).catch(() => {});
  const calls = (outcome: string) => sample('idempotency_calls_total', 'order:<0>', `,outcome="${outcome}"`);
  expect(await calls('ran')).toBe(1);
  expect(await calls('repeated')).toBe(2);
  expect(await calls('failed')).toBe(2);
  expect(await calls('conflict')).toBe(0);
  expect(await sample('idempotency_reattempts_total', 'order:<0>')).toBe(1);
  expect(await sample('idempotency_attempt_seconds_count', 'order:<0>')).toBe(3);
});

it('the metrics of rate limits count decisions, by who decided', async () => {
  await using app = await start();
  for (let time = 0; time < 3; time++) await app.shop.login('ann');
  expect(await app.sample('rate_limit_allowed_total', 'user:<0>', ',decided_by="store"')).toBe(1);
  expect(await app.sample('rate_limit_refused_total', 'user:<0>', ',decided_by="store"')).toBe(2);
  await using outage = await start({ backend: primitivesWith({ rateLimits: { take: away } }) });
  await outage.shop.login('ann');
  const limiter = outage.app.get(RateLimiter);
  await limiter.take('a', { limit: 1, per: '1s', onFailure: 'open' });
  await limiter.take('a', { limit: 1, per: '1s', onFailure: 'closed' }).catch(() => {});
  expect(await outage.sample('rate_limit_allowed_total', 'user:<0>', ',decided_by="process"')).toBe(1);
  expect(await outage.sample('rate_limit_allowed_total', 'none', ',decided_by="nobody"')).toBe(1);
  expect(await outage.sample('rate_limit_failed_total', 'none')).toBe(1);
});

it('the metrics of leaders tell who stands, who leads, and why terms ended', async () => {
  await using app = await start();
  const { sample } = app;
  const candidacy = app.app.get(LeaderElection).join('restock');
  await eventually(async () => (await sample('leader_leading', 'restock')) === 1);
  await app.app.get(LockService).forceRelease('leader:restock');
  await eventually(async () => (await sample('leader_lost_total', 'restock', ',reason="taken"')) === 1);
  await eventually(async () => (await sample('leader_leading', 'restock')) === 1);
  expect(await sample('leader_candidates', 'restock')).toBe(1);
  await candidacy.leave();
  expect(await sample('leader_elected_total', 'restock')).toBe(2);
  expect(await sample('leader_resigned_total', 'restock', ',reason="left"')).toBe(1);
  expect(await sample('leader_leading', 'restock')).toBe(0);
  expect(await sample('leader_candidates', 'restock')).toBe(0);
});

it('no key is a label, and the templates beyond the limit are counted together', async () => {
  await using app = await start({ maxTemplates: 1 });
  const { shop, sample } = app;
  await shop.report(4711);
  await shop.order(4711);
  await shop.login('4711');
  await app.app.get(ScheduledJobs).run('job:4711', { atMostFor: '1m', atLeastFor: 0 }, async () => {});
  await app.app.get(CountDownLatch).define('latch:4711', { count: 1, ttl: '1m' });
  await app.app.get(CountDownLatch).countDown('latch:4711');
  const leaders = app.app.get(LeaderElection);
  for (const name of ['one', 'two', 'three']) await leaders.join(name).answered;
  await eventually(async () => (await sample('leader_leading', 'other')) === 2);
  expect(await sample('leader_leading', 'one')).toBe(1);
  for (const name of ['two', 'three']) await leaders.candidacy(name)?.leave();
  expect(await sample('leader_candidates', 'other')).toBe(0);
  const text = await app.registry.metrics();
  expect(text).not.toMatch('4711');
  expect(text).toMatch('nest_redis_schedule_runs_total{template="none"');
});
