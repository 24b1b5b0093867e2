import 'reflect-metadata';
import { readFile } from 'node:fs/promises';
import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { type Attributes, context, SpanStatusCode, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { Cached, CacheService, DistributedLock, LockConfigError, LockService, RedisLockModule } from 'nest-redis-lock';
import { RedisLockTelemetryModule, type TelemetryOptions } from 'nest-redis-lock/opentelemetry';
import { cacheChannels } from '../../../lib/events/cache-channels.js';
import { lockChannels } from '../../../lib/events/lock-channels.js';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';
import { server, startRedis } from '../../support/one-redis.js';
import { waiterReached } from '../../support/reached-waiter.js';
import { patient } from '../../support/lock-app.js';

startRedis();

describe('in one process', () => {
  @Injectable()
  class Orders {
    @DistributedLock('order:<0>', { wait: '20s' })
    async ship(_id: number, body: () => Promise<unknown> = async () => {}): Promise<void> {
      await body();
    }

    @Cached('product:<0>')
    async product(id: number): Promise<string | undefined> {
      if (id < 0) throw new RangeError('there is none');
      return activeSpanId();
    }
  }

  beforeAll(() => void context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
  afterAll(() => context.disable());

  function activeSpanId(): string | undefined {
    return trace.getActiveSpan()?.spanContext().spanId;
  }

  const alphabetically = (one = '', other = '') => one.localeCompare(other);

  let prefixes = 0;

  async function start(options: TelemetryOptions = {}) {
    const exporter = new InMemorySpanExporter();
    const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
    const measured = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
    const reader = new PeriodicExportingMetricReader({ exporter: measured, exportIntervalMillis: 3_600_000 });
    const meterProvider = new MeterProvider({ readers: [reader] });
    const module = await Test.createTestingModule({
      imports: [
        RedisLockModule.forRoot(
          patient({ redis: server.url, prefix: `telemetry-${++prefixes}`, shutdownGrace: 0, cache: {} }),
        ),
        RedisLockTelemetryModule.forRoot({ tracerProvider, meterProvider, ...options }),
      ],
      providers: [Orders],
    }).compile();
    const app = await module.init();
    const spans = () => exporter.getFinishedSpans();
    const close = async () => {
      await app.close();
      await meterProvider.shutdown();
    };
    return {
      orders: app.get(Orders),
      locks: app.get(LockService),
      cache: app.get(CacheService),
      tracer: tracerProvider.getTracer('test'),
      spans,
      span: (name: string) => eventually(() => spans().find((span) => span.name === name)),
      /** The data points of a metric, once they are as expected. */
      points: async (name: string) => {
        measured.reset();
        await meterProvider.forceFlush();
        const all = measured.getMetrics().flatMap((each) => each.scopeMetrics.flatMap(({ metrics }) => metrics));
        const found = all.find(({ descriptor }) => descriptor.name === `nest_redis_lock.${name}`);
        return (found?.dataPoints ?? []).map(({ attributes, value }) => ({ attributes, value }));
      },
      close,
      [Symbol.asyncDispose]: close,
    };
  }

  const OF_ORDERS = { 'nest_redis_lock.template': 'order:<0>', 'nest_redis_lock.backend': 'redis' };

  describe('the spans of a lock', () => {
    it('are acquire and hold, below the span of the caller', async () => {
      await using app = await start();
      const request = await app.tracer.startActiveSpan('request', async (span) => {
        await app.orders.ship(7, async () => expect(activeSpanId()).toBe(span.spanContext().spanId));
        span.end();
        return span.spanContext();
      });
      const acquire = await app.span('acquire order:<0>');
      const hold = await app.span('hold order:<0>');
      for (const span of [acquire, hold]) {
        expect(span.spanContext().traceId).toBe(request.traceId);
        expect(span.parentSpanContext?.spanId).toBe(request.spanId);
        expect(span.attributes).toMatchObject({ ...OF_ORDERS, 'nest_redis_lock.keys': ['order:7'] });
        expect(span.attributes['nest_redis_lock.owner']).toEqual(expect.any(String));
        expect(span.attributes['nest_redis_lock.fencing_token']).toEqual(expect.any(Number));
      }
      expect(acquire.attributes['nest_redis_lock.outcome']).toBe('acquired');
      expect(hold.links.map(({ context: { spanId } }) => spanId)).toEqual([acquire.spanContext().spanId]);
    });

    it('link from the call that got a lock to the hold that it got it from, each in its own trace', async () => {
      await using app = await start();
      const { orders, tracer } = app;
      let go = () => {};
      const told = new Promise<void>((resolve) => (go = resolve));
      const inSpan = (name: string, body: () => Promise<unknown>) =>
        tracer.startActiveSpan(name, async (span) => {
          await orders.ship(7, body);
          span.end();
          return span.spanContext();
        });
      const first = inSpan('first', () => told);
      await app.span('acquire order:<0>');
      let inside: string | undefined;
      const second = inSpan('second', async () => (inside = activeSpanId()));
      go();
      const [one, other] = await Promise.all([first, second]);
      const spans = await eventually(() => (app.spans().length === 6 ? app.spans() : undefined));
      const of = (name: string, { traceId }: typeof one) =>
        spans.find((span) => span.name === name && span.spanContext().traceId === traceId);
      const hold = of('hold order:<0>', one);
      const acquire = of('acquire order:<0>', other);
      expect(acquire?.parentSpanContext?.spanId).toBe(other.spanId);
      expect(of('hold order:<0>', other)?.parentSpanContext?.spanId).toBe(other.spanId);
      expect(inside).toBe(other.spanId);
      expect(acquire?.attributes['nest_redis_lock.handed_over']).toBe('process');
      expect(acquire?.events.map(({ name }) => name)).toEqual(['contended']);
      expect(acquire?.links.map((link) => link.context.spanId)).toEqual([hold?.spanContext().spanId]);
    });

    it('are errors for a time-out and a loss, and not for a lock that was asked for once', async () => {
      await using app = await start();
      const { locks } = app;
      const lock = await locks.acquire('busy');
      expect(await locks.tryAcquire('busy')).toBe(null);
      await expect(locks.acquire('busy', { wait: 20 })).rejects.toThrow('busy');
      await locks.forceRelease('busy');
      await lock.release().catch(() => {});
      await app.span('hold lock');
      const seen = app.spans().map(({ name, status, attributes }) => [name, status.code, attributes['error.type']]);
      expect(seen).toEqual([
        ['acquire lock', SpanStatusCode.UNSET, undefined],
        ['acquire lock', SpanStatusCode.UNSET, undefined],
        ['acquire lock', SpanStatusCode.ERROR, 'timeout'],
        ['hold lock', SpanStatusCode.ERROR, 'taken'],
      ]);
    });
  });

  it('the span of a load is below that of the caller, which the loader sees', async () => {
    await using app = await start();
    const { orders, tracer } = app;
    const request = await tracer.startActiveSpan('request', async (span) => {
      expect(await orders.product(7)).toBe(span.spanContext().spanId);
      expect(await orders.product(7)).toBe(span.spanContext().spanId);
      await expect(orders.product(-1)).rejects.toThrow('there is none');
      span.end();
      return span.spanContext();
    });
    const loads = await eventually(() => {
      const found = app.spans().filter(({ name }) => name === 'load product:<0>');
      return found.length === 2 ? found : undefined;
    });
    expect(loads.map((span) => span.parentSpanContext?.spanId)).toEqual([request.spanId, request.spanId]);
    expect(loads.map(({ status }) => status.code)).toEqual([SpanStatusCode.UNSET, SpanStatusCode.ERROR]);
    expect(loads[1]?.attributes['error.type']).toBe('RangeError');
  });

  describe('the metrics', () => {
    it('measure calls and holds in seconds, by template and outcome', async () => {
      await using app = await start();
      const { orders, locks } = app;
      await orders.ship(1, async () => {
        const of = [{ attributes: OF_ORDERS, value: 1 }];
        expect(await app.points('held')).toEqual(of);
        expect(await app.points('waiting')).toEqual([{ ...of[0], value: 0 }]);
      });
      await locks.withLock('plain', () => locks.tryAcquire('plain', { reentrant: false }).catch(() => null));
      const lock = await locks.acquire('busy');
      await locks.tryAcquire('busy');
      await lock.release();
      await eventually(async () => (await app.points('held')).every(({ value }) => value === 0));
      const none = { ...OF_ORDERS, 'nest_redis_lock.template': 'none' };
      expect(await app.points('acquire.duration')).toEqual([
        { attributes: OF_ORDERS, value: expect.objectContaining({ count: 1 }) },
        { attributes: none, value: expect.objectContaining({ count: 2 }) },
        { attributes: { ...none, 'error.type': 'timeout' }, value: expect.objectContaining({ count: 1 }) },
      ]);
      expect(await app.points('hold.duration')).toEqual([
        { attributes: OF_ORDERS, value: expect.objectContaining({ count: 1 }) },
        { attributes: none, value: expect.objectContaining({ count: 2 }) },
      ]);
    });

    it('count reads, loads and invalidations of the cache', async () => {
      await using app = await start();
      for (let time = 0; time < 3; time++) await app.orders.product(7);
      await app.cache.invalidate('product:7');
      const of = { 'nest_redis_lock.template': 'product:<0>' };
      expect(await app.points('cache.reads')).toEqual([
        { attributes: { ...of, 'nest_redis_lock.outcome': 'miss' }, value: 1 },
        { attributes: { ...of, 'nest_redis_lock.outcome': 'hit', 'nest_redis_lock.cache.level': 'second' }, value: 2 },
      ]);
      expect(await app.points('cache.load.duration')).toMatchObject([{ attributes: of, value: { count: 1 } }]);
      expect(await app.points('cache.loading')).toEqual([{ attributes: of, value: 0 }]);
      expect(await app.points('cache.invalidations')).toMatchObject([{ value: 1 }]);
    });
  });

  it('counts each kind of failure apart', async () => {
    await using app = await start();
    const [key, template, error] = ['k', 't', new Error('failed')];
    const call = { keys: [key], template, backend: 'b', label: 'here' };
    const times = (count: number, publish: () => void) => Array.from({ length: count }, publish);
    times(1, () => cacheChannels.refreshFailed.publish({ key, template, error }));
    times(2, () => cacheChannels.commitRefused.publish({ key, template }));
    times(3, () => cacheChannels.breakerOpened.publish({ opened: 1 }));
    times(4, () => lockChannels.renewFailed.publish({ call, owner: 'o', fencingToken: 1, failures: 1, why: 'away' }));
    expect(await app.points('cache.refresh.failures')).toMatchObject([{ value: 1 }]);
    expect(await app.points('cache.commit.refusals')).toMatchObject([{ value: 2 }]);
    expect(await app.points('cache.breaker.openings')).toMatchObject([{ value: 3 }]);
    expect(await app.points('renewal.failures')).toMatchObject([{ value: 4 }]);
  });

  it('docs/operations/tracing.md lists every metric, and no other', async () => {
    const page = await readFile(new URL('../../../docs/operations/tracing.md', import.meta.url), 'utf8');
    const listed = Array.from(page.matchAll(/^- `(nest_redis_lock\.[\w.]+)`/gm), ([, name]) => name);
    const made: string[] = [];
    const make = (name: string) => void made.push(name);
    const meter = { createHistogram: make, createCounter: make, createUpDownCounter: make };
    const app = await start({ meterProvider: { getMeter: () => meter as never } });
    expect(made.toSorted(alphabetically)).toEqual(listed.toSorted(alphabetically));
    await app.close();
  });

  it('makes no spans or metrics with false, and listens no more when the application has ended', async () => {
    const without = await start({ tracerProvider: false, meterProvider: false });
    expect(Object.values(lockChannels).filter(({ hasSubscribers }) => hasSubscribers)).toEqual([]);
    await without.close();
    const app = await start();
    expect(lockChannels.attempt.hasSubscribers).toBe(true);
    await app.close();
    expect(Object.values(lockChannels).filter(({ hasSubscribers }) => hasSubscribers)).toEqual([]);
  });

  it.each([
    [{ tracerProvider: {} }, 'Option "tracerProvider"'],
    [{ meterProvider: true }, 'Option "meterProvider" is true; give a MeterProvider, or false'],
    [{ spans: false }, 'Unknown option of telemetry "spans"'],
  ])('refuses %j', async (options, message) => {
    const telemetry = RedisLockTelemetryModule.forRoot(options as TelemetryOptions);
    const started = Test.createTestingModule({ imports: [telemetry] }).compile();
    await expect(started).rejects.toThrow(LockConfigError);
    await expect(started).rejects.toThrow(message);
  });
});

describe('in two processes', () => {
  interface ShownSpan {
    readonly name: string;
    readonly traceId: string;
    readonly spanId: string;
    readonly parent: string;
    readonly attributes: Attributes;
    readonly events: { readonly name: string; readonly attributes: Attributes }[];
  }

  /** A shop in a process of its own. */
  async function startShop() {
    const child = Child.start('traced-shop.mjs', [String(server.port)]);
    const url = `http://127.0.0.1:${await child.says<number>('port')}`;
    const ask = async (route: string, headers = {}) => {
      const [method, path] = route.split(' ') as [string, string];
      const answer = await fetch(`${url}${path}`, { method, headers });
      return answer.json() as Promise<ShownSpan[]>;
    };
    return { ask, says: (word: string) => child.says(word), [Symbol.asyncDispose]: () => child.kill() };
  }

  /** The header with which the caller of a shop names its trace and its span. */
  function traceparent(digit: string) {
    return { traceparent: `00-${digit.repeat(32)}-${digit.repeat(16)}-01` };
  }

  const named = (spans: readonly ShownSpan[], name: string) => spans.find((span) => span.name === name) as ShownSpan;

  it('spans of two processes nest in the trace of their request, and name each other by owner at the hand-over', async () => {
    await using first = await startShop();
    await using second = await startShop();
    const ships = first.ask('POST /ship?wait', traceparent('a'));
    await first.says('holds');
    const waits = second.ask('POST /ship', traceparent('b'));
    await second.says('waits');
    await waiterReached(server, 'order:7');
    await first.ask('POST /go');
    await Promise.all([ships, waits]);
    for (const [shop, digit] of [
      [first, 'a'],
      [second, 'b'],
    ] as const) {
      const spans = await eventually(async () => {
        const ended = await shop.ask('GET /spans');
        return ended.length === 4 ? ended : undefined;
      });
      const request = named(spans, 'POST /ship');
      expect(request.parent).toBe(digit.repeat(16));
      expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set([digit.repeat(32)]));
      for (const name of ['acquire lock', 'hold lock', 'work']) {
        expect(named(spans, name).parent).toBe(request.spanId);
      }
    }
    const hold = named(await first.ask('GET /spans'), 'hold lock');
    const acquire = named(await second.ask('GET /spans'), 'acquire lock');
    expect(acquire.attributes).toMatchObject({
      'nest_redis_lock.keys': ['order:7'],
      'nest_redis_lock.handed_over': 'elsewhere',
      'nest_redis_lock.outcome': 'acquired',
    });
    const [contended] = acquire.events;
    expect(contended?.name).toBe('contended');
    expect(contended?.attributes['nest_redis_lock.owner']).toBe(hold.attributes['nest_redis_lock.owner']);
  });
});
