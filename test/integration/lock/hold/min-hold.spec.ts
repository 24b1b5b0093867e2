import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import {
  DistributedLock,
  type Lock,
  type LockBackend,
  LockConfigError,
  LockLostError,
  type LockOptions,
  memory,
  redis,
  RedisLockModule,
} from 'nest-redis-lock';
import { LockBackends } from '../../../../lib/lock/line/lock-backends.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { type LockApp, patient, startLockApp } from '../../../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';
import { openBackend, replacing } from '../../../support/open-backend.js';

/** Longer than any test: what is free before is free because of `minHold`. */
const LONG = 60_000;

/**
 * Milliseconds between two grants, by the clock of the backend: each token is the time of its grant in µs, or the next
 * one after a token of the last millisecond. No delay of the test makes it shorter or longer.
 */
const between = (one: Lock, next: Lock) => (next.fencingToken - one.fencingToken) / 1_000;
/** What the clock of the tokens may differ (ms) from the clock of the leases over a test. */
const TOLERANCE = 2;

let server: RedisServer;
let plain: Redis;
let client: Redis;

beforeAll(async () => {
  server = await startRedisServer();
  plain = new Redis(server.url);
  client = new Redis(server.url);
});
beforeEach(async () => {
  await plain.flushall();
});
afterAll(async () => {
  plain.disconnect();
  client.disconnect();
  await server.stop();
});

const backends: [string, () => LockBackend][] = [
  ['Redis', () => redis(client)],
  ['memory', () => memory()],
];

describe.each(backends)('minHold on %s', (_backend, open) => {
  let one: LockApp;
  let two: LockApp;

  beforeEach(async () => {
    const store = open();
    one = await startLockApp({ backend: store, shutdownGrace: 0 });
    two = await startLockApp({ backend: store });
  });
  afterEach(async () => {
    await one.close();
    await two.close();
  });

  it('keeps the name taken after an early release: busy elsewhere and here, and still owned by the same', async () => {
    const lock = await one.locks.acquire('x', { minHold: '20s' });
    await lock.release();
    expect(await two.locks.tryAcquire('x')).toBeNull();
    expect(await one.locks.tryAcquire('x')).toBeNull();
    expect(await one.locks.tryAcquire('x', { minHold: '20s' })).toBeNull();
    const info = await two.locks.inspect('x');
    expect(info?.owner).toBe(lock.owner);
    expect(info?.ttl).toBeLessThanOrEqual(20_000);
    expect(info?.ttl).toBeGreaterThan(10_000);
  });

  it.each([
    ['elsewhere', () => two],
    ['here', () => one],
  ])('admits a waiter %s when it is over, and not before', async (_place, where) => {
    const lock = await one.locks.acquire('x', { ttl: LONG, minHold: 700 });
    const waiting = where().locks.acquire('x', { ttl: LONG, wait: 20_000 });
    await eventually(async () => (await where().locks.inspect('x'))?.waiting);
    await lock.release();
    const next = await waiting;
    expect(between(lock, next)).toBeGreaterThanOrEqual(700 - TOLERANCE);
    await next.release();
  });

  it('lets several callers in one after the other, each for as long', async () => {
    const holds: Lock[] = [];
    const run = ({ locks }: LockApp) =>
      locks.withLock('x', { ttl: LONG, wait: 20_000, minHold: 300 }, async (lock) => void holds.push(lock));
    await Promise.all([run(one), run(one), run(two), run(two)]);
    expect(holds).toHaveLength(4);
    for (const [index, next] of holds.slice(1).entries()) {
      expect(between(holds[index] as Lock, next)).toBeGreaterThanOrEqual(300 - TOLERANCE);
    }
  });

  it('is nothing more to wait for where the lock was held for longer', async () => {
    const lock = await one.locks.acquire('x', { minHold: 50 });
    await sleep(80);
    await lock.release();
    expect(await two.locks.inspect('x')).toBeNull();
  });

  it('keeps the name for its whole time with a shorter ttl, even without renewal', async () => {
    const lock = await one.locks.acquire('x', { ttl: 200, renew: false, minHold: '20s' });
    expect((await two.locks.inspect('x'))?.ttl).toBeGreaterThan(19_900);
    await eventually(() => !lock.held);
    expect((await two.locks.inspect('x'))?.ttl).toBeGreaterThan(10_000);
    await expect(lock.release()).rejects.toBeInstanceOf(LockLostError);
    expect(await two.locks.tryAcquire('x')).toBeNull();
  });

  it('ends at once when it is released by force', async () => {
    await (await one.locks.acquire('x', { minHold: '20s' })).release();
    expect(await two.locks.forceRelease('x')).toBe(true);
    await using next = await two.locks.acquire('x', { wait: 0 });
    expect(next.held).toBe(true);
  });

  it('keeps each of several names', async () => {
    await one.locks.withLock(['x', 'y'], { minHold: '20s' }, async () => {});
    expect(await two.locks.tryAcquire('x')).toBeNull();
    expect(await two.locks.tryAcquire('y')).toBeNull();
  });

  it('keeps each of several names also where one was waited for', async () => {
    const held = await two.locks.acquire('x');
    const call = one.locks.withLock(['x', 'y'], { ttl: 500, wait: 10_000, minHold: '20s' }, async () => {});
    await eventually(async () => (await one.locks.inspect('x'))?.waiting);
    await held.release();
    await call;
    for (const name of ['x', 'y']) expect((await two.locks.inspect(name))?.ttl).toBeGreaterThan(10_000);
  });

  it('keeps nothing where nothing was held', async () => {
    const held = await two.locks.acquire('y');
    expect(await one.locks.tryAcquire(['x', 'y'], { minHold: '20s' })).toBeNull();
    expect(await one.locks.tryAcquire(['x', 'y'], { minHold: '20s', wait: 50 })).toBeNull();
    await held.release();
    for (const name of ['x', 'y']) await eventually(async () => (await two.locks.inspect(name)) === null);
  });

  it('of a nested hold keeps the name from then on, and lets those who wait behind the outer one wait', async () => {
    const options: LockOptions = { ttl: 500, wait: 20_000 };
    const entered = new Gate();
    const queued = new Gate();
    let nested = 0;
    const outer = one.locks.withLock('x', options, async () => {
      entered.open();
      await queued.opened;
      nested = performance.now();
      await one.locks.withLock('x', { ...options, minHold: 900 }, async () => {});
    });
    await entered.opened;
    const next = one.locks.acquire('x', options);
    queued.open();
    await outer;
    await (await next).release();
    expect(performance.now() - nested).toBeGreaterThanOrEqual(900);
  });

  it('outlives the application', async () => {
    await one.locks.acquire('x', { minHold: '20s' });
    await one.close();
    expect((await two.locks.inspect('x'))?.ttl).toBeLessThanOrEqual(20_000);
    expect(await two.locks.tryAcquire('x')).toBeNull();
  });

  it('outlives a loss', async () => {
    const lock = await one.locks.acquire('x', { maxHold: 1_500, minHold: '20s' });
    await eventually(() => !lock.held);
    await lock.release().catch(() => {});
    expect(await two.locks.tryAcquire('x')).toBeNull();
  });

  it('is a default of the module', async () => {
    const store = open();
    await using app = await startLockApp({ backend: store, defaults: { minHold: '20s' } });
    await app.locks.withLock('defaulted', async () => {});
    expect(await app.locks.tryAcquire('defaulted')).toBeNull();
  });

  it('makes a decorated method run once for all who call it at about the same time', async () => {
    @Injectable()
    class Report {
      runs = 0;

      @DistributedLock('report', { wait: 0, onBusy: 'skip', minHold: '20s' })
      async send(): Promise<void> {
        this.runs += 1;
      }
    }
    const imports = [RedisLockModule.forRoot(patient({ backend: open() }))];
    const app = await NestFactory.createApplicationContext(
      { module: class {}, imports, providers: [Report] },
      { logger: false },
    );
    const report = app.get(Report);
    for (let call = 0; call < 5; call++) await report.send();
    expect(report.runs).toBe(1);
    await app.close();
  });
});

it('is not ended by messages and answers of its ticket that come late', async () => {
  await using app = await startLockApp({ redis: server.url });
  await using other = await startLockApp({ redis: server.url });
  const held = await other.locks.acquire('x');
  const waiting = app.locks.acquire('x', { wait: 20_000, minHold: '20s' });
  await eventually(async () => (await plain.llen('lock:{x}:queue')) === 1);
  await held.release();
  const lock = await waiting;
  await lock.release();
  const [process = ''] = lock.owner.split(':');
  await plain.publish(`lock:process:${process}`, `grant ${lock.owner} ${lock.fencingToken} 1 1000 0 x`);
  app.app.get(LockBackends).main.releaser.abandon({ names: ['x'], ticket: lock.owner }, 1_000);
  await sleep(100);
  expect((await other.locks.inspect('x'))?.owner).toBe(lock.owner);
  expect(await other.locks.tryAcquire('x')).toBeNull();
});

it('is never lengthened by a copy of the request that comes late', async () => {
  const backend = openBackend(redis(client));
  const request = { name: 'x', ticket: 'process:1' };
  await backend.acquire({ ...request, ttl: LONG });
  expect(await backend.keep?.({ ...request, rest: 1_000 })).toMatchObject({ status: 'released' });
  expect(await backend.keep?.({ ...request, rest: 30_000 })).toMatchObject({ status: 'released' });
  expect(await plain.pttl('lock:{x}')).toBeLessThanOrEqual(1_000);
  expect(await backend.keep?.({ name: 'x', ticket: 'process:2', rest: 10 })).toMatchObject({ status: 'taken' });
  expect(await backend.keep?.({ name: 'y', ticket: 'process:1', rest: 10 })).toMatchObject({ status: 'gone' });
});

it.each([-1, Number.NaN, Infinity, '30', '-1s', {}])('refuses %p', async (minHold) => {
  await using app = await startLockApp({ backend: memory() });
  const outcome = app.locks.acquire('x', { minHold: minHold as number });
  await expect(outcome).rejects.toThrow(/Option "minHold" is/);
  await expect(outcome).rejects.toBeInstanceOf(LockConfigError);
});

it('is refused on a backend that cannot keep a name', async () => {
  const backend = replacing(memory(), () => ({ keep: undefined }));
  await using app = await startLockApp({ backend });
  await expect(app.locks.acquire('x', { minHold: 10 })).rejects.toThrow(/cannot keep a name/);
});
