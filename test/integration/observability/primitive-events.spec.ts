import 'reflect-metadata';
import { channel } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { jest } from '@jest/globals';
import { Injectable, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  CountDownLatch,
  IdempotencyService,
  Idempotent,
  LeaderElection,
  LockService,
  memory,
  PrimitiveEvents,
  RateLimit,
  RateLimiter,
  RedisLockModule,
  type RedisLockModuleOptions,
  ScheduledJobs,
  ScheduledLock,
  Semaphore,
  SemaphoreService,
} from 'nest-redis-lock';
import type { EventStream } from 'nest-redis-lock/events';
import type { PermitsGranted, PrimitiveStores } from '../../../lib/contracts/primitive-stores.js';
import { idempotencyChannels } from '../../../lib/events/idempotency-channels.js';
import { latchChannels } from '../../../lib/events/latch-channels.js';
import { leaderChannels } from '../../../lib/events/leader-channels.js';
import { rateLimitChannels } from '../../../lib/events/rate-limit-channels.js';
import { scheduleChannels } from '../../../lib/events/schedule-channels.js';
import { semaphoreChannels } from '../../../lib/events/semaphore-channels.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { startLockServices } from '../../support/lock-services.js';
import { away } from '../../support/one-redis.js';
import { primitivesWith } from '../../support/primitives-with.js';
import { RecordedEvents } from '../../support/recorded-events.js';
import { scriptedCache } from '../../support/scripted-cache.js';
import { patient } from '../../support/lock-app.js';

const TABLES = [
  semaphoreChannels,
  latchChannels,
  scheduleChannels,
  idempotencyChannels,
  rateLimitChannels,
  leaderChannels,
];
const CHANNELS = TABLES.flatMap((table) => Object.values(table));

const SOURCE = { backend: 'memory', label: 'checkout' };
const MS = expect.any(Number);
const OF_A = expect.objectContaining({ key: 'a', permits: expect.any(Number) });

@Injectable()
class Shop {
  @Semaphore('report:<0>', { permits: 1 })
  async report(_id: number): Promise<void> {}

  @ScheduledLock('nightly', { atMostFor: '1m', atLeastFor: 0 })
  async nightly(body: () => Promise<void> = async () => {}): Promise<void> {
    await body();
  }

  @Idempotent('order:<0>')
  async order(id: number): Promise<number> {
    return id;
  }

  @RateLimit('user:<0>', { limit: 1, per: '1h', onLimit: 'skip' })
  async login(_user: string): Promise<void> {}
}

async function start(options: RedisLockModuleOptions = { backend: memory() }) {
  class Root {}
  const imports = [RedisLockModule.forRoot(patient({ label: 'checkout', shutdownGrace: 0, ...options }))];
  const module = { module: Root, imports, providers: [Shop] };
  const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
  const close = () => app.close();
  return { of: <T>(type: Type<T>): T => app.get(type), close, [Symbol.asyncDispose]: close };
}

/** Records the events of a stream until it is disposed of. */
function record<Types extends object>(stream: EventStream<Types>) {
  const all: { readonly name: keyof Types; readonly event: unknown }[] = [];
  const subscription = stream.all.subscribe((each) => void all.push(each));
  return {
    all,
    get names() {
      return all.map(({ name }) => name);
    },
    of: <Name extends keyof Types>(name: Name) =>
      all.filter((each) => each.name === name).map(({ event }) => event as Types[Name]),
    [Symbol.dispose]: () => subscription.unsubscribe(),
  };
}

it('the locks of scheduled jobs and idempotent methods name the decorator', async () => {
  await using app = await start();
  using events = new RecordedEvents(['acquired']);
  await app.of(Shop).nightly();
  await app.of(Shop).order(7);
  await app.of(ScheduledJobs).run('other', { atMostFor: '1m', atLeastFor: 0 }, async () => {});
  await eventually(() => events.names.length === 3);
  expect(events.of('acquired').map(({ call }) => [call.keys, call.template])).toEqual([
    [['schedule:nightly'], 'schedule:nightly'],
    [['idempotency:order:7'], 'idempotency:order:<0>'],
    [['schedule:other'], undefined],
  ]);
});

describe('the events of a semaphore', () => {
  it('are attempt, acquired and released, of one call, with its template', async () => {
    await using app = await start();
    using events = record(app.of(PrimitiveEvents).semaphores);
    await app.of(Shop).report(7);
    await eventually(() => events.names.length === 3);
    const call = { key: 'report:7', template: 'report:<0>', count: 1, permits: 1, ...SOURCE };
    const [acquired] = events.of('acquired');
    const hold = { call, owner: expect.any(String), fencingToken: MS };
    expect(events.all).toEqual([
      { name: 'attempt', event: { call, wait: 5_000 } },
      { name: 'acquired', event: { ...hold, waited: MS } },
      { name: 'released', event: { ...hold, held: MS } },
    ]);
    expect(acquired?.call).toBe(events.of('attempt')[0]?.call);
    expect(acquired?.call).toBe(events.of('released')[0]?.call);
  });

  it('tell contention once, time-outs, aborted waits and shutdowns', async () => {
    const app = await start();
    const semaphores = app.of(SemaphoreService);
    using events = record(app.of(PrimitiveEvents).semaphores);
    const first = await semaphores.acquire('a', { permits: 2, count: 2 });
    const second = semaphores.acquire('a', { permits: 2, wait: '30s' });
    await eventually(() => events.of('contended').length === 1);
    expect(await semaphores.tryAcquire('a', { permits: 2 })).toBeNull();
    const abort = new AbortController();
    const aborted = semaphores.acquire('a', { permits: 2, signal: abort.signal });
    await eventually(() => events.of('contended').length === 3);
    abort.abort(new Error('left'));
    await expect(aborted).rejects.toThrow('left');
    await first.release();
    await (await second).release();
    const endedLate = semaphores.withPermit('a', { permits: 1 }, async ({ signal }) => {
      await once(signal, 'abort');
      throw new Error('ended late');
    });
    const late = expect(endedLate).rejects.toThrow('ended late');
    const refused = semaphores.acquire('a', { permits: 1, wait: '30s' }).catch((error: unknown) => error);
    await eventually(() => events.of('contended').length === 4);
    await app.close();
    await late;
    expect(events.of('timedOut')).toEqual([{ call: expect.objectContaining({ key: 'a' }), waited: MS }]);
    expect(events.of('failed')).toEqual([
      { call: OF_A, waited: MS, reason: 'aborted', error: abort.signal.reason },
      { call: OF_A, waited: MS, reason: 'shutdown', error: await refused },
    ]);
    expect(events.of('lost')).toMatchObject([{ reason: 'shutdown', held: MS }]);
    expect(events.of('released')).toHaveLength(2);
    expect(events.of('contended')).toHaveLength(4);
  });

  it('tell permits that the store took away, and a store that fails', async () => {
    let answer: () => Promise<unknown> = away;
    const release = async () => ({ live: false, resent: false });
    const acquire = () => answer() as Promise<PermitsGranted>;
    await using app = await start({ backend: primitivesWith({ semaphores: { acquire, release } }) });
    const semaphores = app.of(SemaphoreService);
    using events = record(app.of(PrimitiveEvents).semaphores);
    await expect(semaphores.tryAcquire('a', { permits: 1 })).rejects.toThrow('Redis is away');
    answer = async () => ({ status: 'granted', fencingToken: 3, tokens: 1, remaining: 30_000 });
    const permit = await semaphores.acquire('a', { permits: 1 });
    await expect(permit.release()).rejects.toMatchObject({ code: 'PERMIT_LOST' });
    expect(events.of('failed')).toMatchObject([{ reason: 'backend', error: { code: 'PRIMITIVE_BACKEND' } }]);
    const { owner } = permit;
    expect(events.of('lost')).toEqual([{ call: OF_A, owner, fencingToken: 3, reason: 'taken', held: MS }]);
    expect(events.of('released')).toEqual([]);
  });

  it('tell contention once, also of a call that asks again because the store has forgotten it', async () => {
    let asked = 0;
    const acquire = async () => {
      asked += 1;
      return { status: 'busy' as const, nextEnd: 1, lastToken: 0 };
    };
    const beat = async () => ({ states: [{ status: 'gone' as const }], nextEnd: 1, lastToken: 0 });
    await using app = await start({ backend: primitivesWith({ semaphores: { acquire, beat } }) });
    using events = record(app.of(PrimitiveEvents).semaphores);
    const abort = new AbortController();
    const waiting = app.of(SemaphoreService).acquire('a', { permits: 1, wait: '30s', signal: abort.signal });
    await eventually(() => asked >= 3);
    abort.abort(new Error('left'));
    await expect(waiting).rejects.toThrow('left');
    expect(events.names).toEqual(['attempt', 'contended', 'failed']);
  });

  it('leave out what nobody measured', async () => {
    await using app = await start();
    const permit = await app.of(SemaphoreService).acquire('a', { permits: 1 });
    using events = record(app.of(PrimitiveEvents).semaphores);
    await permit.release();
    expect(events.all).toMatchObject([{ name: 'released', event: { call: { key: 'a' }, held: undefined } }]);
  });
});

it('the events of a latch tell arrivals, and how waits end', async () => {
  const app = await start();
  const latches = app.of(CountDownLatch);
  using events = record(app.of(PrimitiveEvents).latches);
  await latches.define('import', { count: 2, ttl: '1m' });
  const opened = latches.await('import', { wait: '30s' });
  await latches.countDown('import', 'one');
  await expect(latches.await('import', { wait: 0 })).rejects.toThrow('missed 1');
  await expect(latches.await('none', { wait: 0 })).rejects.toThrow('not defined');
  await latches.countDown('import', 'two');
  await opened;
  const abort = new AbortController();
  const aborted = latches.await('other', { signal: abort.signal });
  abort.abort(new Error('left'));
  await expect(aborted).rejects.toThrow('left');
  const waiting = latches.await('other', { wait: '30s' }).catch((error: unknown) => error);
  await app.close();
  const latch = { key: 'import', ...SOURCE };
  const other = { ...latch, key: 'other', waited: MS };
  expect(events.all).toEqual([
    { name: 'countedDown', event: { ...latch, arrivalId: 'one', remaining: 1 } },
    { name: 'timedOut', event: { ...latch, waited: MS, remaining: 1 } },
    { name: 'timedOut', event: { ...latch, key: 'none', waited: MS, remaining: undefined } },
    { name: 'countedDown', event: { ...latch, arrivalId: 'two', remaining: 0 } },
    { name: 'opened', event: { ...latch, waited: MS } },
    { name: 'failed', event: { ...other, reason: 'aborted', error: abort.signal.reason } },
    { name: 'failed', event: { ...other, reason: 'shutdown', error: await waiting } },
  ]);
});

it('the events of scheduled jobs tell runs, skipped calls, and a backend that fails', async () => {
  const runs: Partial<PrimitiveStores['runs']> = {};
  await using app = await start({ backend: primitivesWith({ runs }) });
  const shop = app.of(Shop);
  using events = record(app.of(PrimitiveEvents).schedules);
  const gate = new Gate();
  const running = shop.nightly(() => gate.opened);
  await eventually(() => events.of('started').length === 1);
  await shop.nightly();
  gate.open();
  await running;
  await expect(shop.nightly(() => Promise.reject(new Error('out of paper')))).rejects.toThrow('out of paper');
  runs.enter = away;
  const options = { atMostFor: '1m', atLeastFor: 0 } as const;
  await expect(app.of(ScheduledJobs).run('hourly', options, async () => {})).rejects.toThrow('away');
  const job = { name: 'nightly', template: 'nightly', ...SOURCE };
  const run = { ...job, fencingToken: MS };
  expect(events.all).toEqual([
    { name: 'started', event: run },
    { name: 'skipped', event: { ...job, remaining: MS } },
    { name: 'succeeded', event: { ...run, took: MS } },
    { name: 'started', event: run },
    { name: 'failed', event: { ...run, took: MS, error: expect.objectContaining({ message: 'out of paper' }) } },
    { name: 'unavailable', event: { ...SOURCE, name: 'hourly', template: undefined, error: expect.any(Error) } },
  ]);
});

it('the events of idempotent methods tell what each call got', async () => {
  const results: Partial<PrimitiveStores['results']> = {};
  await using app = await start({ backend: primitivesWith({ results }) });
  const [shop, service] = [app.of(Shop), app.of(IdempotencyService)];
  using events = record(app.of(PrimitiveEvents).idempotency);
  await shop.order(7);
  await shop.order(7);
  const failing = { keepErrors: () => false, fingerprint: 'one' };
  await expect(service.run('k', failing, () => Promise.reject(new Error('no stock')))).rejects.toThrow('no stock');
  const [begun, gate] = [new Gate(), new Gate()];
  const running = service.run('k', failing, async () => {
    begun.open();
    await gate.opened;
  });
  await begun.opened;
  await expect(service.run('k', { onRunning: 'throw' }, async () => {})).rejects.toThrow('still runs');
  gate.open();
  await running;
  await expect(service.run('k', { fingerprint: 'two' }, async () => {})).rejects.toThrow('fingerprint');
  results.enter = away;
  await expect(service.run('new', { onRunning: 'throw' }, async () => {})).rejects.toThrow('away');
  const [order, plain] = [
    { key: 'order:7', template: 'order:<0>', ...SOURCE },
    { key: 'k', template: undefined, ...SOURCE },
  ];
  expect(events.all).toEqual([
    { name: 'ran', event: { ...order, attempt: 1, took: MS } },
    { name: 'repeated', event: { ...order, attempt: 1 } },
    {
      name: 'failed',
      event: { ...plain, attempt: 1, took: MS, error: expect.objectContaining({ message: 'no stock' }) },
    },
    { name: 'busy', event: { ...plain, waited: MS } },
    { name: 'ran', event: { ...plain, attempt: 2, took: MS } },
    { name: 'conflict', event: plain },
    {
      name: 'unavailable',
      event: { ...plain, key: 'new', error: expect.objectContaining({ code: 'PRIMITIVE_BACKEND' }) },
    },
  ]);
});

it('the events of rate limits tell how each call was decided, and by whom', async () => {
  let isAway = false;
  const inner = memory() as never as { openPrimitiveStores(): { rateLimits: { take(r: object): Promise<never> } } };
  const { rateLimits } = inner.openPrimitiveStores();
  const take = (request: object) => (isAway ? away() : rateLimits.take(request));
  await using app = await start({ backend: primitivesWith({ rateLimits: { take, hit: away } }) });
  const [shop, limiter] = [app.of(Shop), app.of(RateLimiter)];
  using events = record(app.of(PrimitiveEvents).rateLimits);
  await shop.login('ann');
  await shop.login('ann');
  isAway = true;
  const one = { limit: 1, per: '1h' } as const;
  await limiter.take('local', one);
  await limiter.take('open', { ...one, onFailure: 'open' });
  await expect(limiter.take('closed', { ...one, onFailure: 'closed' })).rejects.toThrow();
  await limiter.throttlerStorage({ onFailure: 'open' }).increment('ip', 1_000, 1, 0, 'default');
  await expect(limiter.throttlerStorage({ onFailure: 'closed' }).increment('ip', 9, 1, 0, 'all')).rejects.toThrow();
  const ann = { key: 'user:ann', template: 'user:<0>', cost: 1, decidedBy: 'store', ...SOURCE };
  const plain = { template: undefined, ...SOURCE };
  const error = expect.objectContaining({ code: 'PRIMITIVE_BACKEND' });
  expect(events.all).toEqual([
    { name: 'allowed', event: ann },
    { name: 'refused', event: { ...ann, retryAfter: MS } },
    { name: 'allowed', event: { ...plain, key: 'local', cost: 1, decidedBy: 'process' } },
    { name: 'allowed', event: { ...plain, key: 'open', cost: 1, decidedBy: 'nobody' } },
    { name: 'failed', event: { ...plain, key: 'closed', error } },
    { name: 'allowed', event: { ...plain, key: 'throttler:nest-redis-lock:default:ip', cost: 1, decidedBy: 'nobody' } },
    { name: 'failed', event: { ...plain, key: 'throttler:nest-redis-lock:all:ip', error } },
  ]);
});

it('the events of leaders tell terms, and why they end', async () => {
  await using app = await start();
  const leaders = app.of(LeaderElection);
  using events = record(app.of(PrimitiveEvents).leaders);
  const candidacy = leaders.join('restock');
  await eventually(() => events.of('elected').length === 1);
  await candidacy.resign();
  await eventually(() => events.of('elected').length === 2);
  await app.of(LockService).forceRelease('leader:restock');
  await eventually(() => events.of('lost').length === 1);
  await eventually(() => events.of('elected').length === 3);
  await candidacy.leave();
  const leader = { name: 'restock', ...SOURCE };
  const term = { ...leader, term: MS };
  expect(events.all).toEqual([
    { name: 'joined', event: leader },
    { name: 'elected', event: term },
    { name: 'resigned', event: { ...term, reason: 'resigned' } },
    { name: 'elected', event: term },
    { name: 'lost', event: { ...term, reason: 'taken' } },
    { name: 'elected', event: term },
    { name: 'resigned', event: { ...term, reason: 'left' } },
    { name: 'left', event: leader },
  ]);
  const terms = events.of('elected').map(({ term: number }) => number);
  expect(terms).toEqual(terms.toSorted((one, other) => one - other));
});

describe('without a listener', () => {
  async function work(): Promise<void> {
    const app = await start();
    const shop = app.of(Shop);
    const semaphores = app.of(SemaphoreService);
    const latches = app.of(CountDownLatch);
    await shop.report(1);
    const permit = await semaphores.acquire('a', { permits: 1 });
    await semaphores.tryAcquire('a', { permits: 1 });
    await semaphores.acquire('a', { permits: 1, signal: AbortSignal.timeout(10) }).catch(() => {});
    await permit.release();
    await semaphores.acquire('a', { permits: 1 });
    await latches.define('l', { count: 1, ttl: '1m' });
    await latches.await('l', { wait: 0 }).catch(() => {});
    await latches.countDown('l');
    await latches.await('l');
    await shop.nightly();
    await shop.nightly(() => Promise.reject(new Error('failed'))).catch(() => {});
    for (let time = 0; time < 2; time++) await shop.order(1);
    for (let time = 0; time < 2; time++) await shop.login('ann');
    await app.of(LeaderElection).join('l').answered;
    await app.close();
  }

  it('nothing is published', async () => {
    const spies = CHANNELS.map((each) => jest.spyOn(each, 'publish'));
    const published = () => spies.reduce((sum, { mock }) => sum + mock.calls.length, 0);
    await work();
    expect(published()).toBe(0);
    const listener = () => {};
    for (const each of CHANNELS) each.subscribe(listener);
    await work();
    for (const each of CHANNELS) each.unsubscribe(listener);
    expect(published()).toBeGreaterThan(20);
    for (const spy of spies) spy.mockRestore();
  });
});

/** Locks that are contended, handed over, renewed, lost and timed out; reads that hit, miss, load and fail. */
async function workInMemory(): Promise<void> {
  await using service = await startLockServices({ backend: memory() });
  const { locks } = service;
  await Promise.all([1, 2, 3].map(() => locks.withLock('a', () => locks.withLock('a', async () => {}))));
  await locks.withLock(['a', 'b'], () => locks.tryAcquire('b', { reentrant: false }).catch(() => {}));
  const lost = await locks.acquire('c', { ttl: '2s', renew: { interval: 10 } });
  await eventually(async () => lost.remaining() > 0);
  await locks.forceRelease('c');
  await lost.release().catch(() => {});
  using scripted = scriptedCache({ l1: {} });
  const { cache } = scripted;
  for (let time = 0; time < 3; time++) await cache.getOrSet('k', () => 1, { tags: ['t'] });
  await cache.getOrSet('failing', () => Promise.reject(new Error('away'))).catch(() => {});
  await cache.get('k');
  await cache.invalidate('k');
  await cache.deleteByTag('t');
  await cache.deleteByPrefix('k');
}

it('without a listener no event is made, nor published', async () => {
  const published = jest.spyOn(Object.getPrototypeOf(channel('any')) as { publish(): void }, 'publish');
  await workInMemory();
  expect(published).not.toHaveBeenCalled();
  published.mockRestore();
});

it('without a listener no clock is read for events', async () => {
  const readsOfALock = async () => {
    await using service = await startLockServices({ backend: memory() });
    await service.locks.withLock('warm', async () => {});
    const clock = jest.spyOn(performance, 'now');
    await service.locks.withLock('a', async () => {});
    const reads = clock.mock.calls.length;
    clock.mockRestore();
    return reads;
  };
  const unobserved = await readsOfALock();
  using events = new RecordedEvents();
  expect(await readsOfALock()).toBeGreaterThan(unobserved);
  expect(events.names.length).toBeGreaterThan(0);
});

it('with listeners the same work makes these events', async () => {
  using events = new RecordedEvents();
  await workInMemory();
  const made = new Set(events.names);
  const expected = ['attempt', 'contended', 'acquired', 'handedOver', 'lost', 'released', 'releasedLate'];
  expect([...made]).toEqual(expect.arrayContaining([...expected, 'hit', 'miss', 'loadStarted', 'load', 'invalidate']));
});
