import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { jest } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Redis } from 'ioredis';
import {
  Cached,
  CacheEvents,
  DistributedLock,
  LockEvents,
  LockService,
  memory,
  redis,
  RedisLockModule,
} from 'nest-redis-lock';
import { lastValueFrom, of, take, toArray } from 'rxjs';
import { cacheChannels } from '../../../lib/events/cache-channels.js';
import { lockChannels } from '../../../lib/events/lock-channels.js';
import { Caller } from '../../../lib/lock/line/caller.js';
import { cacheApp } from '../../support/cache-app.js';
import { openCache } from '../../support/cache-instance.js';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';
import { FaultyBackend } from '../../support/faulty-backend.js';
import { startLockApp } from '../../support/lock-app.js';
import { away, server as sharedServer, startRedis } from '../../support/one-redis.js';
import { waiterReached } from '../../support/reached-waiter.js';
import { RecordedEvents } from '../../support/recorded-events.js';
import { scriptedCache } from '../../support/scripted-cache.js';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';

describe('of a lock', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  describe('the events of a lock', () => {
    it('are attempt, acquired and released, of one call', async () => {
      await using app = await startLockApp({ backend: memory(), label: 'checkout' });
      using events = new RecordedEvents();
      const lock = await app.locks.acquire('order:7', { wait: '3s' });
      await lock.release();
      await eventually(() => events.of('released').length > 0);
      expect(events.names).toEqual(['attempt', 'acquired', 'released']);
      const [attempt] = events.of('attempt');
      const call = { keys: ['order:7'], template: undefined, backend: 'memory', label: 'checkout' };
      expect(attempt).toEqual({ call, wait: 3_000 });
      const [acquired] = events.of('acquired');
      const { owner, fencingToken } = lock;
      expect(acquired).toEqual({ call, owner, fencingToken, waited: expect.any(Number), reentrant: false });
      const [released] = events.of('released');
      expect(released).toEqual({ call, owner, fencingToken, held: expect.any(Number), confirmed: true });
      expect(acquired?.call).toBe(attempt?.call);
      expect(released?.call).toBe(attempt?.call);
    });

    it('tell that it was contended, and handed over in the process, with the durations', async () => {
      await using app = await startLockApp({ redis: server.url });
      using events = new RecordedEvents();
      const first = await app.locks.acquire('handed');
      const second = app.locks.acquire('handed');
      await eventually(() => events.of('contended').length === 1);
      await sleep(60);
      await first.release();
      const { owner } = await second;
      const [of1, of2] = events.of('acquired');
      expect(events.of('contended')).toEqual([{ call: of2?.call, owner: first.owner }]);
      expect(of2?.waited).toBeGreaterThanOrEqual(59);
      expect(of2?.owner).toBe(owner);
      expect(events.of('handedOver')).toEqual([{ call: of2?.call, from: of1?.call, latency: expect.any(Number) }]);
      await eventually(() => events.of('released').length === 1);
      expect(events.of('released')[0]?.held).toBeGreaterThanOrEqual(59);
      await (await second).release();
    });

    it('tell that another process handed it over', async () => {
      await using one = await startLockApp({ redis: server.url });
      await using other = await startLockApp({ redis: server.url });
      const first = await one.locks.acquire('passed');
      using events = new RecordedEvents();
      const second = other.locks.acquire('passed');
      await eventually(() => events.of('contended').length === 1);
      await waiterReached(server, 'passed');
      await first.release();
      await (await second).release();
      const [acquired] = events.of('acquired');
      expect(events.of('contended')).toEqual([{ call: acquired?.call, owner: first.owner }]);
      expect(events.of('handedOver')).toEqual([{ call: acquired?.call, from: undefined, latency: undefined }]);
    });

    it('tell that the wait was over, or why else the call failed', async () => {
      await using app = await startLockApp({ redis: server.url });
      using events = new RecordedEvents(['attempt', 'contended', 'acquired', 'timedOut', 'failed']);
      await using _ = await app.locks.acquire('busy');
      expect(await app.locks.tryAcquire('busy')).toBeNull();
      await expect(app.locks.acquire('busy', { wait: 20 })).rejects.toThrow('still busy');
      const abort = new AbortController();
      const aborted = app.locks.acquire('busy', { signal: abort.signal });
      abort.abort(new Error('left'));
      await expect(aborted).rejects.toThrow('left');
      const polled = app.locks.acquire(['busy', 'idle'], { wait: 10 });
      await expect(polled).rejects.toThrow('still busy');
      expect(events.of('contended')).toHaveLength(4);
      expect(events.of('timedOut').map(({ call }) => call.keys)).toEqual([['busy'], ['busy'], ['busy', 'idle']]);
      expect(events.of('failed')).toMatchObject([{ reason: 'aborted', error: abort.signal.reason }]);
      expect(events.of('attempt')).toHaveLength(5);
      expect(events.of('acquired')).toHaveLength(1);
    });

    it('tell that the backend failed, and that the application was ending', async () => {
      const faulty = new FaultyBackend(memory());
      const app = await startLockApp({ backend: faulty.backend, shutdownGrace: 0 });
      using events = new RecordedEvents();
      faulty.arm(0, 'refused');
      await expect(app.locks.acquire('a', { wait: 0 })).rejects.toThrow('refused');
      const held = await app.locks.acquire('a');
      const waiting = app.locks.acquire('a').catch((error: unknown) => error);
      await app.close();
      await waiting;
      expect(events.of('failed')).toMatchObject([{ reason: 'backend' }, { reason: 'shutdown' }]);
      expect(events.of('lost')).toMatchObject([{ reason: 'shutdown', owner: held.owner }]);
      await held.release().catch(() => {});
      expect(events.of('releasedLate')).toMatchObject([{ owner: held.owner, held: expect.any(Number) }]);
      expect(events.of('released')).toEqual([]);
    });

    it('tell renewals, and renewals that fail', async () => {
      const faulty = new FaultyBackend(memory());
      await using app = await startLockApp({ backend: faulty.backend });
      using events = new RecordedEvents();
      await using lock = await app.locks.acquire('renewed', { ttl: '3s', renew: { interval: 20 } });
      await eventually(() => events.of('renewed').length > 0);
      const { owner, fencingToken } = lock;
      const ofHold = { call: events.of('attempt')[0]?.call, owner, fencingToken };
      expect(events.of('renewed')[0]).toEqual({ ...ofHold, took: expect.any(Number), lag: expect.any(Number) });
      faulty.arm(0, 'refused');
      await eventually(() => events.of('renewFailed').length > 0);
      expect(events.of('renewFailed')[0]).toEqual({ ...ofHold, failures: 1, why: expect.stringContaining('refused') });
    });

    it('tell that a lock was taken, once, and that its holder ended late', async () => {
      await using app = await startLockApp({ redis: server.url });
      using events = new RecordedEvents();
      const body = app.locks.withLock(['x', 'y'], async () => {
        await app.locks.forceRelease('x');
        await app.locks.forceRelease('y');
      });
      await expect(body).rejects.toThrow('lost');
      expect(events.of('lost')).toMatchObject([{ reason: 'taken', call: { keys: ['x', 'y'] } }]);
      expect(events.of('releasedLate')).toHaveLength(1);
      expect(events.of('released')).toEqual([]);
    });

    it('tell a lock that its release found taken as lost, not as released', async () => {
      await using app = await startLockApp({ redis: server.url });
      using events = new RecordedEvents(['lost', 'released']);
      const lock = await app.locks.acquire('stolen');
      const client = new Redis(server.url);
      await client.set('lock:{stolen}', 'somebody', 'PX', 60_000);
      client.disconnect();
      await expect(lock.release()).rejects.toThrow('lost');
      expect(events.all).toMatchObject([{ name: 'lost', event: { reason: 'taken' } }]);
    });

    it('tell a lock whose lease ended unnoticed as lost, also if its body throws', async () => {
      await using app = await startLockApp({ backend: memory() });
      using events = new RecordedEvents(['lost', 'released', 'releasedLate']);
      const body = app.locks.withLock('late', { ttl: 100, renew: false }, async () => {
        const until = performance.now() + 150;
        while (performance.now() < until);
        throw new Error('failed late');
      });
      await expect(body).rejects.toThrow('failed late');
      await eventually(() => events.all.length === 2);
      expect(events.all.map(({ name }) => name)).toEqual(['lost', 'releasedLate']);
      expect(events.of('lost')).toMatchObject([{ reason: 'expired' }]);
    });

    it('tell nested holds as reentrant', async () => {
      await using app = await startLockApp({ backend: memory() });
      using events = new RecordedEvents(['acquired', 'released']);
      await app.locks.withLock('nested', () => app.locks.withLock('nested', async () => {}));
      await eventually(() => events.of('released').length === 2);
      expect(events.of('acquired').map(({ reentrant }) => reentrant)).toEqual([false, true]);
    });

    it('name the backend by its name in the module', async () => {
      await using app = await startLockApp({ backend: memory(), backends: { jobs: redis(server.url) } });
      using events = new RecordedEvents(['acquired']);
      await app.locks.withLock('job', { backend: 'jobs' }, async () => {});
      expect(events.all).toMatchObject([{ event: { call: { backend: 'jobs' } } }]);
    });
  });

  it('carry the template of the decorator, or the name of the method', async () => {
    @Injectable()
    class Orders {
      @DistributedLock('order:<0>')
      async ship(_id: number): Promise<void> {}

      @DistributedLock(['from:<0>', 'to:<1>'])
      async move(_from: string, _to: string): Promise<void> {}

      @DistributedLock((id: number) => `order:${id}`)
      async pack(_id: number): Promise<void> {}

      @DistributedLock('stream:<0>')
      watch(_id: number) {
        return of(1, 2);
      }
    }
    Reflect.defineMetadata('design:returntype', (await import('rxjs')).Observable, Orders.prototype, 'watch');
    const module = await Test.createTestingModule({
      imports: [RedisLockModule.forRoot({ backend: memory() })],
      providers: [Orders],
    }).compile();
    const app = await module.init();
    using events = new RecordedEvents(['acquired', 'released']);
    const orders = app.get(Orders);
    await orders.ship(7);
    await orders.move('a', 'b');
    await orders.pack(8);
    await app.get(LockService).withLock('plain', async () => {});
    await eventually(() => events.of('released').length === 4);
    const templates = ['order:<0>', 'from:<0>,to:<1>', 'Orders.pack', undefined];
    expect(events.of('acquired').map(({ call }) => call.template)).toEqual(templates);
    expect(events.of('released').map(({ call }) => call.template)).toEqual(templates);
    await app.close();
  });

  describe('LockEvents', () => {
    it('is a stream of all events with their names, or of those of one name', async () => {
      await using app = await startLockApp({ backend: memory() });
      const events = app.app.get(LockEvents);
      const all = lastValueFrom(events.all.pipe(take(3), toArray()));
      const acquired = lastValueFrom(events.of('acquired').pipe(take(1)));
      await app.locks.withLock('a', async () => {});
      expect((await all).map(({ name }) => name)).toEqual(['attempt', 'acquired', 'released']);
      expect((await acquired).call.keys).toEqual(['a']);
    });

    it('leaves the channel with the last subscription', async () => {
      await using app = await startLockApp({ backend: memory() });
      const events = app.app.get(LockEvents);
      const subscription = events.all.subscribe();
      const off = events.on('lost', () => {});
      expect(lockChannels.lost.hasSubscribers).toBe(true);
      subscription.unsubscribe();
      off();
      expect(Object.values(lockChannels).filter(({ hasSubscribers }) => hasSubscribers)).toEqual([]);
    });

    it('logs the error of a listener, which harms neither the lock nor other listeners', async () => {
      await using app = await startLockApp({ backend: memory() });
      const events = app.app.get(LockEvents);
      const seen: string[] = [];
      const offs = [
        events.on('acquired', () => {
          throw new Error('a defect of the listener');
        }),
        events.on('released', () => Promise.reject(new Error('another one'))),
        events.on('acquired', ({ call }) => seen.push(...call.keys)),
      ];
      expect(await app.locks.withLock('a', async () => 'result')).toBe('result');
      await eventually(() => app.logger.lines.some((line) => line.text.includes('another one')));
      expect(app.logger.lines.map(({ text }) => text).join('\n')).toMatch(
        'A listener of the event acquired failed: "Error: a defect of the listener"',
      );
      expect(seen).toEqual(['a']);
      for (const off of offs) off();
    });
  });

  it('an error of a listener of a channel is reported as uncaught, and does not harm the lock', async () => {
    const child = Child.start('throwing-listener.mjs', [String(server.port)]);
    await child.says('result');
    await child.says('uncaught: a defect');
    expect(await child.exited).toBe(0);
  });
});

describe('of a cache', () => {
  startRedis();

  describe('the events of a cache', () => {
    it('are a miss with its load, and hits by level', async () => {
      await using app = await openCache({ redis: sharedServer.url, prefix: 'by-level', cache: { l1: {} } });
      using events = new RecordedEvents();
      await app.cache.getOrSet('k', () => 'value');
      await app.cache.getOrSet('k', () => 'other', { consistency: 'strong' });
      await app.cache.getOrSet('k', () => 'other');
      expect(events.names).toEqual(['miss', 'loadStarted', 'load', 'hit', 'hit']);
      const ofKey = { key: 'k', template: undefined };
      expect(events.of('miss')).toEqual([ofKey]);
      expect(events.of('loadStarted')).toEqual([ofKey]);
      const [started] = events.of('loadStarted');
      expect(events.of('load')).toEqual([{ ...ofKey, load: started, took: expect.any(Number), error: undefined }]);
      expect(events.of('load')[0]?.load).toBe(started);
      expect(events.of('hit')).toEqual([
        { ...ofKey, level: 'second', stale: false },
        { ...ofKey, level: 'first', stale: false },
      ]);
    });

    it('are hits and misses of reads by hand, and invalidations by key, tag and prefix', async () => {
      await using app = await cacheApp();
      using events = new RecordedEvents();
      await app.cache.get('k');
      await app.cache.set('k', 1);
      await app.cache.get('k');
      await app.cache.getDel('k');
      await app.cache.invalidate('k');
      await app.cache.deleteByTag('t');
      await app.cache.deleteByPrefix('p');
      expect(events.names).toEqual(['miss', 'hit', 'invalidate', 'hit', 'invalidate', 'invalidate', 'invalidate']);
      const none = { key: undefined, tag: undefined, matching: undefined };
      expect(events.of('invalidate')).toEqual([
        { ...none, key: 'k' },
        { ...none, key: 'k' },
        { ...none, tag: 't' },
        { ...none, matching: 'p' },
      ]);
    });

    it('carry the template of the decorator', async () => {
      @Injectable()
      class Products {
        @Cached('product:<0>')
        async find(id: number): Promise<number> {
          return id;
        }

        @Cached((id: number) => `price:${id}`, { tags: ['price:<0>'] })
        async price(id: number): Promise<number> {
          return id;
        }
      }
      await using app = await cacheApp({ providers: [Products] });
      using events = new RecordedEvents();
      const products = app.app.get(Products);
      for (let time = 0; time < 2; time++) {
        await products.find(7);
        await products.price(7);
      }
      const templates = ['product:<0>', 'Products.price'];
      for (const name of ['miss', 'load', 'hit'] as const) {
        expect(events.of(name).map(({ template }) => template)).toEqual(templates);
      }
    });

    it('tell stale hits and failed refreshes, and the errors of loaders', async () => {
      await using app = await cacheApp();
      using events = new RecordedEvents();
      const options = { ttl: 20, staleTtl: '1m', jitter: 0 } as const;
      await app.cache.getOrSet('k', () => 'value', options);
      await sleep(40);
      const error = new Error('the database is away');
      const fail = () => Promise.reject(error);
      expect(await app.cache.getOrSet('k', fail, options)).toBe('value');
      await eventually(() => events.of('refreshFailed').length === 1);
      expect(events.of('hit')).toEqual([{ key: 'k', template: undefined, level: 'second', stale: true }]);
      expect(events.of('refreshFailed')).toEqual([{ key: 'k', template: undefined, error }]);
      expect(events.of('load').map((load) => load.error)).toEqual([undefined, error]);
    });

    it('tell that the store refused a value whose key was invalidated meanwhile', async () => {
      await using app = await cacheApp();
      using events = new RecordedEvents(['commitRefused']);
      await app.cache.getOrSet('k', async () => {
        await app.cache.invalidate('k');
        return 'old';
      });
      await eventually(() => events.of('commitRefused').length > 0);
      expect(events.of('commitRefused')).toEqual([{ key: 'k', template: undefined }]);
    });

    it('tell deletions that the store did not confirm, and their confirmation', async () => {
      using scripted = scriptedCache({ breaker: { errors: 1_000_000 } });
      const { cache, store } = scripted;
      using events = new RecordedEvents(['unconfirmed', 'confirmed']);
      const invalidate = store.invalidate.bind(store);
      store.invalidate = away;
      await cache.invalidate('k');
      const what = 'invalidation of "k"';
      expect(events.all).toEqual([{ name: 'unconfirmed', event: { what } }]);
      store.invalidate = invalidate;
      await eventually(() => events.of('confirmed').length === 1);
      expect(events.of('confirmed')).toEqual([{ what }]);
    });

    it('tell that the circuit breaker opened and closed', async () => {
      using scripted = scriptedCache({ breaker: { errors: 2, open: '1m' } });
      const { cache, store } = scripted;
      using events = new RecordedEvents(['breakerOpened', 'breakerClosed']);
      const { read, ping } = store;
      store.read = away;
      store.ping = away;
      await cache.get('a');
      await cache.get('b');
      expect(events.all).toEqual([{ name: 'breakerOpened', event: { opened: 1 } }]);
      store.read = read;
      store.ping = ping;
      await eventually(() => events.of('breakerClosed').length === 1);
      expect(events.of('breakerClosed')).toEqual([{ opened: 1 }]);
    });
  });

  it('CacheEvents calls a listener until it is taken off', async () => {
    await using app = await cacheApp();
    const hits: string[] = [];
    const off = app.app.get(CacheEvents).on('hit', ({ key }) => hits.push(key));
    await app.cache.set('k', 1);
    await app.cache.get('k');
    off();
    await app.cache.get('k');
    expect(hits).toEqual(['k']);
  });
});

describe('without a listener', () => {
  startRedis();

  const CHANNELS = Object.values({ ...lockChannels, ...cacheChannels });

  /** Counts the payloads that are made, also those that nobody would get. */
  function payloads() {
    const publish = CHANNELS.map((channel) => jest.spyOn(channel, 'publish'));
    const call = jest.spyOn(Caller.prototype, 'call', 'get');
    const count = () => [...publish, call].reduce((sum, { mock }) => sum + mock.calls.length, 0);
    return { count, [Symbol.dispose]: () => [...publish, call].forEach((spy) => spy.mockRestore()) };
  }

  async function useLocks() {
    await using app = await startLockApp({ backend: memory() });
    const lock = await app.locks.acquire('a', { ttl: '3s', renew: { interval: 20 } });
    const next = app.locks.acquire('a');
    await app.locks.tryAcquire('a');
    await lock.extend();
    await lock.release();
    await (await next).release();
    await app.locks.withLock('a', () => app.locks.withLock('a', async () => {}));
    const lost = await app.locks.acquire('a');
    await app.locks.forceRelease('a');
    await lost.release().catch(() => {});
  }

  async function useCache() {
    await using app = await cacheApp({}, { module: { cache: { l1: {} } } });
    await app.cache.getOrSet('k', () => 'value');
    await app.cache.getOrSet('k', () => 'value');
    await app.cache.get('k');
    await app.cache.get('none');
    await app.cache.invalidate('k');
    await app.cache.deleteByTag('t');
    await app.cache.getOrSet('k', () => Promise.reject(new Error('failed'))).catch(() => {});
  }

  it.each([
    ['locks', useLocks],
    ['a cache', useCache],
  ])('nobody listening, %s make no payload', async (_what, use) => {
    using made = payloads();
    await use();
    expect(made.count()).toBe(0);
    using _ = new RecordedEvents();
    await use();
    expect(made.count()).toBeGreaterThan(5);
  });
});
