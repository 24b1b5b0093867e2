import 'reflect-metadata';
import { readFile } from 'node:fs/promises';
import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  Cached,
  CacheService,
  CountDownLatch,
  DistributedLock,
  Idempotent,
  LeaderElection,
  type LockBackend,
  LockConfigError,
  LockService,
  memory,
  RateLimit,
  RateLimiter,
  RedisLockModule,
  ScheduledJobs,
  ScheduledLock,
  Semaphore,
  SemaphoreService,
} from 'nest-redis-lock';
import { type MetricsOptions, RedisLockMetricsModule } from 'nest-redis-lock/prometheus';
import { RedisLockTelemetryModule } from 'nest-redis-lock/opentelemetry';
import { AggregatorRegistry, Registry } from 'prom-client';
import type { PrimitiveStores } from '../../../lib/contracts/primitive-stores.js';
import { cacheChannels } from '../../../lib/events/cache-channels.js';
import { lockChannels } from '../../../lib/events/lock-channels.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { away, server, startRedis } from '../../support/one-redis.js';
import { primitivesWith } from '../../support/primitives-with.js';
import { patient } from '../../support/lock-app.js';

describe('the metrics of locks and the cache', () => {
  startRedis();

  @Injectable()
  class Orders {
    @DistributedLock('order:<0>', { wait: '20s' })
    async ship(_id: number, body: () => Promise<void> = async () => {}): Promise<void> {
      await body();
    }

    @DistributedLock('try:<0>', { wait: 0, onBusy: 'skip' })
    async tried(_id: number, body: () => Promise<void>): Promise<void> {
      await body();
    }

    @Cached('product:<0>')
    async product(id: number): Promise<number> {
      if (id < 0) throw new Error('there is none');
      return id;
    }
  }

  let prefixes = 0;

  async function start(options: Partial<MetricsOptions> = {}) {
    const registry = new Registry();
    const prefix = `metrics-${++prefixes}`;
    const module = await Test.createTestingModule({
      imports: [
        RedisLockModule.forRoot(patient({ redis: server.url, prefix, shutdownGrace: 0, cache: {} })),
        RedisLockMetricsModule.forRoot({ registry, ...options }),
      ],
      providers: [Orders],
    }).compile();
    const app = await module.init();
    const close = () => app.close();
    return {
      registry,
      orders: app.get(Orders),
      locks: app.get(LockService),
      cache: app.get(CacheService),
      close,
      [Symbol.asyncDispose]: close,
    };
  }

  /** The value of a sample in the text that Prometheus scrapes. */
  async function sample(registry: Registry, name: string, labels = ''): Promise<number | undefined> {
    const lines = (await registry.metrics()).split('\n');
    const line = lines.find((each) => each.startsWith(`nest_redis_${name}${labels} `));
    return line === undefined ? undefined : Number(line.split(' ').at(-1));
  }

  describe('the metrics of locks', () => {
    it('add up: attempts are acquired, failed, or still waiting', async () => {
      await using app = await start();
      const { orders, registry } = app;
      let end = () => {};
      const ended = new Promise<void>((resolve) => (end = resolve));
      const holder = orders.tried(1, () => ended);
      await eventually(async () => (await sample(registry, 'lock_held', '{template="try:<0>",backend="redis"}')) === 1);
      await orders.tried(1, async () => {});
      const shipped = orders.ship(7, () => ended);
      const waiting = [orders.ship(7), orders.ship(7)];
      const of = '{template="order:<0>",backend="redis"';
      await eventually(async () => (await sample(registry, 'lock_waiting', `${of}}`)) === 2);
      expect(await sample(registry, 'lock_attempts_total', `${of}}`)).toBe(3);
      expect(await sample(registry, 'lock_acquired_total', `${of},reentrant="false"}`)).toBe(1);
      end();
      await Promise.all([holder, shipped, ...waiting]);
      await eventually(async () => (await sample(registry, 'lock_held', `${of}}`)) === 0);
      expect(await sample(registry, 'lock_waiting', `${of}}`)).toBe(0);
      expect(await sample(registry, 'lock_acquired_total', `${of},reentrant="false"}`)).toBe(3);
      expect(await sample(registry, 'lock_released_total', `${of},confirmed="true"}`)).toBe(3);
      expect(await sample(registry, 'lock_contended_total', `${of}}`)).toBe(2);
      expect(await sample(registry, 'lock_wait_seconds_count', `${of}}`)).toBe(3);
      expect(await sample(registry, 'lock_hold_seconds_count', `${of}}`)).toBe(3);
      expect(await sample(registry, 'lock_handed_over_total', `${of},from="process"}`)).toBe(2);
      expect(await sample(registry, 'lock_hand_over_seconds_count', `${of}}`)).toBe(2);
      const tried = '{template="try:<0>",backend="redis"';
      expect(await sample(registry, 'lock_attempts_total', `${tried}}`)).toBe(2);
      expect(await sample(registry, 'lock_failed_total', `${tried},reason="timeout"}`)).toBe(1);
    });

    it('have histograms with rising buckets, in seconds', async () => {
      await using app = await start({ buckets: [0.05, 30] });
      await app.orders.ship(1, () => new Promise((resolve) => setTimeout(resolve, 80)));
      const of = 'template="order:<0>",backend="redis"';
      await eventually(async () => (await sample(app.registry, 'lock_hold_seconds_count', `{${of}}`)) === 1);
      expect(await sample(app.registry, 'lock_hold_seconds_bucket', `{le="0.05",${of}}`)).toBe(0);
      expect(await sample(app.registry, 'lock_hold_seconds_bucket', `{le="30",${of}}`)).toBe(1);
      expect(await sample(app.registry, 'lock_hold_seconds_bucket', `{le="+Inf",${of}}`)).toBe(1);
      const sum = (await sample(app.registry, 'lock_hold_seconds_sum', `{${of}}`)) as number;
      expect(sum).toBeGreaterThan(0.07);
      expect(sum).toBeLessThan(30);
    });

    it('count losses by reason, and renewals', async () => {
      await using app = await start();
      const { locks, registry } = app;
      const lock = await locks.acquire('plain', { ttl: '3s', renew: { interval: 20 } });
      const of = '{template="none",backend="redis"';
      await eventually(async () => ((await sample(registry, 'lock_renewed_total', `${of}}`)) ?? 0) > 0);
      expect(await sample(registry, 'lock_renewal_seconds_count', `${of}}`)).toBeGreaterThan(0);
      expect(await sample(registry, 'lock_watchdog_lag_seconds_count', `${of}}`)).toBeGreaterThan(0);
      await locks.forceRelease('plain');
      await lock.release().catch(() => {});
      expect(await sample(registry, 'lock_lost_total', `${of},reason="taken"}`)).toBe(1);
      expect(await sample(registry, 'lock_released_late_total', `${of}}`)).toBe(1);
    });

    it.each(['first', 'last'])(
      'count the templates beyond the limit together, with calls of none %s',
      async (place) => {
        await using app = await start({ maxTemplates: 1 });
        if (place === 'first') await app.locks.withLock('plain', async () => {});
        await app.orders.ship(1);
        await app.orders.tried(1, async () => {});
        if (place === 'last') await app.locks.withLock('plain', async () => {});
        const text = await app.registry.metrics();
        const templates = new Set(
          Array.from(text.matchAll(/lock_attempts_total\{template="([^"]+)"/g), ([, each]) => each),
        );
        expect([...templates].toSorted((one, other) => String(one).localeCompare(String(other)))).toEqual([
          'none',
          'order:<0>',
          'other',
        ]);
      },
    );
  });

  it('counts hits, misses, loads and invalidations of the cache', async () => {
    await using app = await start();
    const { orders, cache, registry } = app;
    for (let time = 0; time < 3; time++) await orders.product(7);
    await orders.product(-1).catch(() => {});
    await cache.invalidate('product:7');
    const of = '{template="product:<0>"';
    expect(await sample(registry, 'cache_misses_total', `${of}}`)).toBe(2);
    expect(await sample(registry, 'cache_hits_total', `${of},level="second",stale="false"}`)).toBe(2);
    expect(await sample(registry, 'cache_loads_total', `${of},outcome="success"}`)).toBe(1);
    expect(await sample(registry, 'cache_loads_total', `${of},outcome="error"}`)).toBe(1);
    expect(await sample(registry, 'cache_load_seconds_count', `${of}}`)).toBe(2);
    expect(await sample(registry, 'cache_loading', `${of}}`)).toBe(0);
    expect(await sample(registry, 'cache_invalidations_total', '{by="key"}')).toBe(1);
    expect(await sample(registry, 'cache_breaker_open')).toBe(0);
  });

  it('counts each kind of event apart', async () => {
    await using app = await start();
    const { registry } = app;
    const [key, template, error, what] = ['k', 't', new Error('failed'), 'key "k"'];
    const call = { keys: [key], template, backend: 'b', label: 'here' };
    const times = (count: number, publish: () => void) => Array.from({ length: count }, publish);
    times(1, () => cacheChannels.refreshFailed.publish({ key, template, error }));
    times(2, () => cacheChannels.commitRefused.publish({ key, template }));
    times(3, () => cacheChannels.unconfirmed.publish({ what }));
    times(4, () => cacheChannels.confirmed.publish({ what }));
    times(5, () => cacheChannels.breakerOpened.publish({ opened: 1 }));
    times(2, () => cacheChannels.breakerClosed.publish({ opened: 1 }));
    times(6, () => lockChannels.renewFailed.publish({ call, owner: 'o', fencingToken: 1, failures: 1, why: 'away' }));
    const of = (name: string, labels?: string) => sample(registry, name, labels);
    expect(await of('cache_refresh_failed_total', '{template="t"}')).toBe(1);
    expect(await of('cache_commits_refused_total', '{template="t"}')).toBe(2);
    expect(await of('cache_unconfirmed_total')).toBe(3);
    expect(await of('cache_confirmed_total')).toBe(4);
    expect(await of('cache_breaker_opened_total')).toBe(5);
    expect(await of('cache_breaker_open')).toBe(3);
    expect(await of('lock_renew_failed_total', '{template="t",backend="b"}')).toBe(6);
  });

  it('no key is a label', async () => {
    await using app = await start();
    await app.orders.ship(4711);
    await app.orders.product(4711);
    expect(labelsIn(await app.registry.metrics())).not.toMatch('4711');
  });

  it('leaves the registry when the application ends, and is shown as JSON and as OpenMetrics', async () => {
    const app = await start();
    await app.orders.ship(1);
    const names = (await app.registry.getMetricsAsJSON()).map(({ name }) => name);
    expect(names).toContain('nest_redis_lock_wait_seconds');
    app.registry.setContentType(Registry.OPENMETRICS_CONTENT_TYPE as never);
    await app.orders.ship(1);
    const text = await app.registry.metrics();
    expect(text).toMatch('nest_redis_lock_attempts_total{template="order:<0>",backend="redis"} 2');
    await app.close();
    expect(app.registry.getMetricsAsArray()).toEqual([]);
  });

  it.each([
    [{ registry: undefined }, 'Option "registry" is undefined; give a Registry of prom-client'],
    [{ registry: {} }, 'give a Registry of prom-client'],
    [{ prefix: '7up' }, 'Option "prefix" is "7up"'],
    [{ maxTemplates: 0 }, 'Option "maxTemplates" is 0'],
    [{ buckets: [2, 1] }, 'Option "buckets" is 2,1; give rising numbers'],
    [{ buckets: [1, Infinity] }, 'Option "buckets" is 1,Infinity; give rising numbers'],
    [{ labels: true }, 'Unknown option of metrics "labels"'],
  ])('refuses %j', async (options, message) => {
    const metrics = { registry: new Registry(), ...options } as MetricsOptions;
    const started = Test.createTestingModule({ imports: [RedisLockMetricsModule.forRoot(metrics)] }).compile();
    await expect(started).rejects.toThrow(LockConfigError);
    await expect(started).rejects.toThrow(message);
  });

  it.each<[object | undefined, string]>([
    [{}, 'Options "useFactory", "useClass" and "useExisting": none is set; give exactly one'],
    [undefined, 'Option "options" is undefined; give an object with useFactory'],
    [{ useFactory: 1 }, 'Option "useFactory" is 1; give a function or a class'],
  ])('refuses forRootAsync(%j), as telemetry does', (options, message) => {
    for (const module of [RedisLockMetricsModule, RedisLockTelemetryModule]) {
      expect(() => module.forRootAsync(options as never)).toThrow(LockConfigError);
      expect(() => module.forRootAsync(options as never)).toThrow(message);
    }
  });

  /** What the page says about the end of a name. */
  function typeOf(name: string): string {
    if (name.endsWith('_total')) return 'counter';
    return name.endsWith('_seconds') && !name.endsWith('last_success_timestamp_seconds') ? 'histogram' : 'gauge';
  }

  it('docs/operations/metrics.md lists every metric with its type, and no other', async () => {
    await using app = await start();
    const page = await readFile(new URL('../../../docs/operations/metrics.md', import.meta.url), 'utf8');
    const listed = Array.from(page.matchAll(/^- `(nest_redis_\w+)`/gm), ([, name = '']) => `${name} ${typeOf(name)}`);
    const metrics = await app.registry.getMetricsAsJSON();
    expect(listed).toEqual(metrics.map(({ name, type }) => `${name} ${type}`));
  });

  it('resetMetrics() sets counters and histograms to 0, and no gauge', async () => {
    await using app = await start();
    const { orders, registry } = app;
    const of = '{template="order:<0>",backend="redis"';
    await orders.ship(1, async () => {
      registry.resetMetrics();
      expect(await sample(registry, 'lock_attempts_total', `${of}}`)).toBe(0);
      expect(await sample(registry, 'lock_wait_seconds_count', `${of}}`)).toBe(0);
      expect(await sample(registry, 'lock_held', `${of}}`)).toBe(1);
    });
    await eventually(async () => (await sample(registry, 'lock_held', `${of}}`)) === 0);
    expect(await sample(registry, 'lock_released_total', `${of},confirmed="true"}`)).toBe(1);
  });
});

describe('the metrics of primitives', () => {
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
        RedisLockModule.forRoot(patient({ backend, shutdownGrace: 0 })),
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
    const runs: Partial<PrimitiveStores['runs']> = {};
    await using app = await start({ backend: primitivesWith({ runs }) });
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
    runs.enter = away;
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
    // As the primary of node:cluster makes one text of the answers of two workers.
    const worker = (await app.registry.getMetricsAsJSON()) as unknown as object[];
    const both = await AggregatorRegistry.aggregate([worker, worker]).metrics();
    expect(both).toContain(`last_success_timestamp_seconds{template="nightly",backend="memory"} ${last}\n`);
    expect(both).toContain('schedule_skipped_total{template="nightly",backend="memory"} 2\n');
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
    expect(labelsIn(text)).not.toMatch('4711');
    expect(text).toMatch('nest_redis_schedule_runs_total{template="none"');
  });
});

/** The labels of all samples, without their values: the sum of some times may hold any digits. */
function labelsIn(metrics: string): string {
  const labels = metrics.match(/\{.*\}/g) ?? [];
  expect(labels).not.toEqual([]);
  return labels.join('\n');
}
