import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Get, Inject, Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { DistributedLock, type Lock, LockBackendError, LockLostError, RedisLockModule } from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { QueueCrew } from '../support/queue-crew.js';
import { ScriptedBackend } from '../support/scripted-backend.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';
import { HEARING, WatchedHeartbeats } from '../support/watched-heartbeats.js';

describe('a queue', () => {
  const CLAIM = 1_000;
  /** What the clock of the tokens may differ (ms) from the clock of the leases. */
  const TOLERANCE = 2;

  let server: RedisServer;
  let one: LockApp;
  let other: LockApp;
  /** Those of `other`. */
  let heartbeats: WatchedHeartbeats;
  let plain: Redis;
  let crew: QueueCrew;

  beforeAll(async () => {
    server = await startRedisServer();
    plain = new Redis(server.url);
    crew = new QueueCrew(server.port);
    heartbeats = new WatchedHeartbeats();
    const backend = heartbeats.on(server.url);
    [one, other] = await Promise.all([startLockApp({ redis: server.url }), startLockApp({ backend })]);
  });
  afterEach(() => heartbeats.heal());
  afterAll(async () => {
    await crew.dismiss();
    await one.close();
    await other.close();
    plain.disconnect();
    await server.stop();
  });

  /** Waits until the queue has this number of tickets. */
  async function queued(name: string, tickets: number): Promise<void> {
    await eventually(async () => (await plain.llen(`lock:{${name}}:queue`)) === tickets, { every: 2 });
  }

  /** The time of Redis in ms, which the tokens of grants give in µs. */
  async function redisTime(): Promise<number> {
    const [seconds, micros] = await plain.time();
    return Number(seconds) * 1_000 + Number(micros) / 1_000;
  }

  /** The lock of a waiter of `other`: it has sent no heartbeat but those that are due in `ms` from now, and one. */
  async function grantedAfter(ms: number, waiting: Promise<Lock>): Promise<Lock> {
    const before = heartbeats.sent;
    const lock = await waiting;
    expect(heartbeats.sent - before).toBeLessThanOrEqual(Math.ceil(ms / WatchedHeartbeats.PERIOD) + 1);
    return lock;
  }

  describe('a waiter whose turn comes', () => {
    it('delays no other waiter when it is dead', async () => {
      await crew.hire('killed');
      const holder = await one.locks.acquire('dead-next');
      await crew.take('killed', 'dead-next', 'dead', { options: { ttl: 30_000, wait: 20_000 } });
      await queued('dead-next', 1);
      const waiting = other.locks.acquire('dead-next', HEARING);
      await queued('dead-next', 2);
      await crew.member('killed').kill();
      // The release itself hands it on: the dead one is granted no claim, whose end a heartbeat would find.
      heartbeats.holdGrants();
      await holder.release();
      await (await waiting).release();
      expect(await crew.grants('dead-next')).toEqual([]);
    });

    it('delays the others by its claim, which is far shorter than its ttl, when it is paused, and does not hold the lock when it goes on', async () => {
      await crew.hire('paused');
      const holder = await one.locks.acquire('paused-next');
      await crew.take('paused', 'paused-next', 'paused', { options: { ttl: 30_000, wait: 20_000 } });
      await queued('paused-next', 1);
      const waiting = other.locks.acquire('paused-next', HEARING);
      await queued('paused-next', 2);
      crew.member('paused').signal('SIGSTOP');
      heartbeats.holdGrants();
      const before = await redisTime();
      await holder.release();
      // Whether its claim lasts or has ended: nobody has renewed the lease.
      expect(await plain.pttl('lock:{paused-next}')).toBeLessThanOrEqual(CLAIM);
      heartbeats.heal();
      const lock = await grantedAfter(CLAIM, waiting);
      expect(lock.fencingToken / 1_000 - before).toBeGreaterThanOrEqual(CLAIM - TOLERANCE);
      crew.member('paused').signal('SIGCONT');
      await queued('paused-next', 1);
      expect(await crew.grants('paused-next')).toEqual([]);
      expect(lock.held).toBe(true);
      await lock.release();
      await eventually(async () => (await crew.grants('paused-next')).length === 1);
      await crew.member('paused').kill();
    });
  });

  describe('a holder that dies', () => {
    it('delays the next by the rest of its lease, and not by a heartbeat more', async () => {
      await crew.hire('holder');
      await crew.take('holder', 'dead-holder', 'holder', { options: { ttl: 1_500 }, hold: 'forever' });
      await eventually(() => plain.exists('lock:{dead-holder}'));
      const waiting = other.locks.acquire('dead-holder', { wait: 10_000 });
      await queued('dead-holder', 1);
      await crew.member('holder').kill();
      const [ends, rest] = [await plain.pexpiretime('lock:{dead-holder}'), await plain.pttl('lock:{dead-holder}')];
      // That one of them comes when the lease ends is shown where the clock is driven.
      const lock = await grantedAfter(rest, waiting);
      expect(lock.fencingToken / 1_000).toBeGreaterThanOrEqual(ends - TOLERANCE);
      await lock.release();
    });
  });

  describe('a foreign client', () => {
    it('that deletes the key gives the lock to a waiter elsewhere, and the release of the former holder does not free it', async () => {
      const robbed = await one.locks.acquire('deleted');
      const waiting = other.locks.acquire('deleted', { wait: 10_000 });
      await queued('deleted', 1);
      await plain.del('lock:{deleted}');
      const lock = await grantedAfter(0, waiting);
      expect(lock.fencingToken).toBeGreaterThan(robbed.fencingToken);
      await expect(robbed.release()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'taken' });
      expect(await plain.get('lock:{deleted}')).toBe(lock.owner);
      expect(lock.held).toBe(true);
      await lock.release();
    });

    it('that deletes the key is noticed by a holder with others behind it in its own process', async () => {
      const robbed = await one.locks.acquire('deleted-here');
      const waiting = one.locks.acquire('deleted-here', { wait: 10_000 });
      await sleep(100);
      await plain.del('lock:{deleted-here}');
      const lock = await waiting;
      expect(robbed.signal.reason).toMatchObject({ reason: 'taken' });
      await expect(robbed.release()).rejects.toBeInstanceOf(LockLostError);
      expect(await plain.get('lock:{deleted-here}')).toBe(lock.owner);
      await lock.release();
    });

    it('that takes the lock of a holder with waiters here and elsewhere delays none of them for good', async () => {
      const robbed = await one.locks.acquire('robbed');
      const inside: string[] = [];
      const take = async (app: LockApp, as: string) => {
        const lock = await app.locks.acquire('robbed', { wait: 10_000 });
        inside.push(as);
        await lock.release();
      };
      const all = Promise.all([take(one, 'here'), take(one, 'here'), take(other, 'there'), take(other, 'there')]);
      await queued('robbed', 1);
      await plain.set('lock:{robbed}', 'somebody', 'PX', 300);
      await all;
      expect(inside.toSorted()).toEqual(['here', 'here', 'there', 'there']);
      await expect(robbed.release()).rejects.toBeInstanceOf(LockLostError);
    });

    it.each(['expires', 'is deleted'])('that does not know the queue is waited for until its key %s', async (how) => {
      const name = `foreign ${how}`;
      const expires = how === 'expires';
      const key = `lock:{${name}}`;
      expect(await plain.set(key, 'foreign', 'PX', expires ? 600 : 60_000, 'NX')).toBe('OK');
      let ends = await plain.pexpiretime(key);
      const calls = [one, one, other].map((app) => app.locks.acquire(name, { wait: 10_000 }));
      const released = calls.map(async (call) => (await call).release());
      await queued(name, 2);
      if (!expires) {
        ends = await redisTime();
        await plain.del(key);
      }
      await grantedAfter(expires ? 600 : 0, Promise.race(calls));
      await Promise.all(released);
      for (const call of calls) expect((await call).fencingToken / 1_000).toBeGreaterThanOrEqual(ends - TOLERANCE);
    });
  });

  describe('messages that are lost', () => {
    it('cost a heartbeat at most', async () => {
      const holder = await one.locks.acquire('unheard');
      const waiting = other.locks.acquire('unheard', { wait: 10_000 });
      await queued('unheard', 1);
      await cutSubscribers();
      await holder.release();
      const lock = await grantedAfter(0, waiting);
      await lock.release();
    });

    it('cost a heartbeat at most even if another subscriber received them', async () => {
      const holder = await one.locks.acquire('overheard');
      const waiting = other.locks.acquire('overheard', { wait: 10_000 });
      await queued('overheard', 1);
      await cutSubscribers();
      await using eavesdropper = await eavesdrop();
      await holder.release();
      const lock = await grantedAfter(0, waiting);
      // Each process also sends itself empty messages, to see whether they arrive.
      expect(eavesdropper.heard.filter((text) => text !== '')).toEqual([expect.stringMatching(/^grant .* overheard$/)]);
      await lock.release();
    });
  });

  async function cutSubscribers(): Promise<void> {
    expect(Number(await plain.call('CLIENT', 'KILL', 'TYPE', 'pubsub'))).toBeGreaterThan(0);
  }

  /** Subscribes to the channels of all processes, so that every message seems to arrive. */
  async function eavesdrop(): Promise<AsyncDisposable & { heard: string[] }> {
    const heard: string[] = [];
    const client = new Redis(server.url);
    client.on('pmessage', (_pattern, _channel, text: string) => heard.push(text));
    await client.psubscribe('lock:process:*');
    return { heard, [Symbol.asyncDispose]: async () => client.disconnect() };
  }

  describe('Redis that forgets under contention', () => {
    it.each([
      ['its data', () => plain.flushall()],
      ['its scripts', () => plain.script('FLUSH')],
    ])('%s serves everybody all the same', async (_what, forget) => {
      const served = new Map<string, number>();
      const errors: unknown[] = [];
      let until = performance.now() + 1_500;
      const call = async (app: LockApp, as: string) => {
        while (performance.now() < until) {
          try {
            const lock = await app.locks.acquire('forgotten', { wait: 10_000 });
            served.set(as, (served.get(as) ?? 0) + 1);
            await new Promise(setImmediate);
            await lock.release();
          } catch (error) {
            if (!(error instanceof LockLostError)) errors.push(error);
          }
        }
      };
      const calls = Array.from({ length: 10 }, (_, i) => [call(one, `one ${i}`), call(other, `other ${i}`)]).flat();
      for (let round = 0; round < 8; round++) {
        await sleep(40);
        await forget();
      }
      served.clear();
      until = Math.max(until, performance.now() + 1_000);
      await Promise.all(calls);
      expect(errors).toEqual([]);
      expect(served.size).toBe(20);
    });
  });

  describe('a queue that loses a key, as by eviction', () => {
    it.each(['queue', 'waiters'])('(%s) serves all waiters, and leaves nothing behind', async (key) => {
      const name = `evicted ${key}`;
      const holder = await one.locks.acquire(name);
      const calls = [other, one, other].map((app) => app.locks.acquire(name, { order: 'fifo', wait: 10_000 }));
      await queued(name, 3);
      await plain.del(`lock:{${name}}:${key}`);
      const late = other.locks.acquire(name, { wait: 10_000 });
      await sleep(10);
      await holder.release();
      await Promise.all([...calls, late].map(async (call) => (await call).release()));
      expect(await plain.exists(`lock:{${name}}:queue`, `lock:{${name}}:waiters`)).toBe(0);
    });
  });

  describe('after all of that', () => {
    it('nothing is left but fences, labels and notes of versions, which expire', async () => {
      await eventually(async () => (await plain.keys('*')).every((key) => /(:fence|:label|versions)$/.test(key)));
      const keys = await plain.keys('*');
      expect(keys.length).toBeGreaterThan(0);
      for (const key of keys) expect(await plain.pttl(key)).toBeGreaterThan(0);
      expect(await crew.findings()).toEqual([]);
    });
  });
});

describe('an abandoned ticket', () => {
  /** A request that was carried out, whose answer was lost in an outage: nobody holds what it was granted. */

  /** Longer than any test: a lock that is free before was given back. */
  const TTL = 60_000;

  let server: RedisServer;
  let plain: Redis;
  let proxy: FaultProxy;
  let victim: LockApp;

  beforeAll(async () => {
    server = await startRedisServer();
    plain = new Redis(server.url);
  });
  afterAll(async () => {
    plain.disconnect();
    await server.stop();
  });
  beforeEach(async () => {
    await plain.flushall();
    proxy = await FaultProxy.start(server.port);
    const redis = { host: '127.0.0.1', port: proxy.port };
    victim = await startLockApp({ redis, commandTimeout: 300, defaults: { ttl: TTL } });
    await warm(victim);
  });
  afterEach(async () => {
    proxy.accept();
    await victim.close();
    await proxy.stop();
  });

  /** So that Redis knows the scripts: the answer that it does not would be the one that is lost. */
  async function warm({ locks }: LockApp): Promise<void> {
    await locks.withLock('warm', async () => {});
    await locks.withLock(['warm', 'warm too'], async () => {});
  }

  /** The next request that contains `pattern` is carried out, and from then on Redis cannot be reached. */
  async function outageAfter(pattern: string): Promise<void> {
    await proxy.lose(pattern, true, { thenRefuses: true });
    await eventually(async () => (await plain.exists(`lock:{${pattern}}`)) === 1);
  }

  async function freeSoon(name: string): Promise<void> {
    await eventually(async () => (await plain.exists(`lock:{${name}}`)) === 0, { within: 5_000 });
  }

  const calls: [string, (app: LockApp) => Promise<unknown>][] = [
    ['withLock', ({ locks }) => locks.withLock('order:7', { wait: 400 }, async () => {})],
    ['one try', ({ locks }) => locks.tryAcquire('order:7')],
    ['a retry strategy', ({ locks }) => locks.acquire('order:7', { wait: 400, retry: () => ({ next: never }) })],
    ['order: fifo', ({ locks }) => locks.acquire('order:7', { wait: 400, order: 'fifo' })],
    ['several names', ({ locks }) => locks.acquire(['order:7', 'order:8'], { wait: 400 })],
  ];

  const never = () => ({ done: true as const, value: undefined });

  it.each(calls)('is given back after the outage: %s', async (_, call) => {
    const cut = outageAfter('order:7');
    const outcome = call(victim).catch((error: unknown) => error);
    await cut;
    expect(await outcome).toBeInstanceOf(LockBackendError);
    await sleep(400);
    expect(await plain.exists('lock:{order:7}')).toBe(1);
    proxy.accept();
    await freeSoon('order:7');
    await freeSoon('order:8');
  });

  it('is given back after the outage: @DistributedLock', async () => {
    @Injectable()
    class Orders {
      runs = 0;

      @DistributedLock('order:<0>', { wait: 400, ttl: TTL })
      async ship(_id: string): Promise<void> {
        this.runs += 1;
      }
    }
    @Controller()
    class OrdersController {
      constructor(@Inject(Orders) readonly orders: Orders) {}

      @Get()
      ship(): Promise<void> {
        return this.orders.ship('9');
      }
    }
    const redis = { host: '127.0.0.1', port: proxy.port };
    const imports = [RedisLockModule.forRoot({ redis, commandTimeout: 300 })];
    const module = { module: class {}, imports, providers: [Orders], controllers: [OrdersController] };
    const app = await NestFactory.createApplicationContext(module, { logger: false });
    try {
      const orders = app.get(Orders);
      const cut = outageAfter('order:9');
      const outcome = orders.ship('9').catch((error: unknown) => error);
      await cut;
      expect(await outcome).toBeInstanceOf(LockBackendError);
      expect(orders.runs).toBe(0);
      proxy.accept();
      await freeSoon('order:9');
    } finally {
      proxy.accept();
      await app.close();
    }
  });

  it('leaves the queue after the outage', async () => {
    await using other = await startLockApp({ redis: server.url });
    const held = await other.locks.acquire('order:7');
    const controller = new AbortController();
    const waiting = victim.locks.acquire('order:7', { wait: 60_000, signal: controller.signal }).catch(() => {});
    await eventually(async () => (await plain.llen('lock:{order:7}:queue')) === 1);
    proxy.refuse();
    controller.abort();
    await waiting;
    await sleep(400);
    expect(await plain.llen('lock:{order:7}:queue')).toBe(1);
    proxy.accept();
    await eventually(async () => (await plain.llen('lock:{order:7}:queue')) === 0, { within: 2_500 });
    await held.release();
  });

  it('is given back if the application ends within the outage, and the outage ends in time', async () => {
    const patient = await startLockApp({ redis: { host: '127.0.0.1', port: proxy.port }, commandTimeout: 3_000 });
    await warm(patient);
    const cut = outageAfter('order:7');
    const outcome = patient.locks.tryAcquire('order:7').catch((error: unknown) => error);
    await cut;
    expect(await outcome).toBeInstanceOf(LockBackendError);
    // What was sent until now has failed: the client library gives up after the second try to connect.
    await sleep(500);
    const closing = patient.close();
    proxy.accept();
    await closing;
    expect(await plain.exists('lock:{order:7}')).toBe(0);
  });

  it('does not flood the backend: a few of many are sent at a time, and all are given back', async () => {
    const backend = new ScriptedBackend();
    const app = await startLockApp({ backend });
    try {
      backend.atOnce = { enqueue: () => new Error('connection lost') };
      const tries = Array.from({ length: 100 }, (_, index) => app.locks.tryAcquire(`many:${index}`));
      await Promise.allSettled(tries);
      const first = backend.all('release');
      expect(first).toHaveLength(100);
      for (const release of first) await release.fail();
      const tickets = new Set(backend.releases);
      for (let answered = 0; answered < 100;) {
        const repeated = await eventually(() => {
          const open = backend.all('release').slice(100 + answered);
          return open.length > 0 ? open : undefined;
        });
        expect(repeated.length).toBeLessThanOrEqual(16);
        for (const release of repeated) {
          expect(tickets.delete(release.ticket)).toBe(true);
          await release.answer({ status: 'gone', resent: false });
        }
        answered += repeated.length;
      }
      expect(tickets.size).toBe(0);
    } finally {
      backend.giveUp();
      await app.close();
    }
  });
});
