import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Get, Injectable, Inject } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { DistributedLock, LockBackendError, RedisLockModule } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { ScriptedBackend } from '../support/scripted-backend.js';

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
