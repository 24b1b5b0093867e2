import 'reflect-metadata';
import { readFile } from 'node:fs/promises';
import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Cached, CacheService, DistributedLock, LockConfigError, LockService, RedisLockModule } from 'nest-redis-lock';
import { RedisLockMetricsModule, type MetricsOptions } from 'nest-redis-lock/prometheus';
import { Registry } from 'prom-client';
import { cacheChannels } from '../../../lib/events/cache-channels.js';
import { lockChannels } from '../../../lib/events/lock-channels.js';
import { eventually } from '../../support/eventually.js';
import { startRedis, server } from '../../support/one-redis.js';

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
      RedisLockModule.forRoot({ redis: server.url, prefix, shutdownGrace: 0 }),
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

  it.each(['first', 'last'])('count the templates beyond the limit together, with calls of none %s', async (place) => {
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
  });
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
  expect(await app.registry.metrics()).not.toMatch('4711');
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

it('docs/operations/metrics.md lists every metric with its type, and no other', async () => {
  await using app = await start();
  const page = await readFile(new URL('../../../docs/operations/metrics.md', import.meta.url), 'utf8');
  const listed = Array.from(page.matchAll(/^\| `(nest_redis_\w+)` +\| (\w+)/gm), ([, name, type]) => `${name} ${type}`);
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
