import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Lock, LockOptions } from 'nest-redis-lock';
import { RENEW } from '../../lib/backends/redis/locks/release.lua.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { eventually } from '../support/eventually.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';

/** The event loop stands still while an answer of Redis arrives: timers come before it, and must not be believed. */

let server: RedisServer;
let client: Redis;
let plain: Redis;
let app: LockApp;
let other: LockApp;
/** Runs once, right after the next command of this kind was sent. */
let afterSend: { isIt: (sha1: string) => boolean; run: () => void } | undefined;

const CLAIM = 1_000;
const STALL = CLAIM + 400;

beforeAll(async () => {
  server = await startRedisServer();
  plain = new Redis(server.url);
  client = new Redis(server.url);
  const sendCommand = client.sendCommand.bind(client);
  Object.assign(client, {
    sendCommand: (...sent: Parameters<typeof sendCommand>) => {
      const reply = sendCommand(...sent);
      const [{ name, args }] = sent;
      if (name === 'evalsha' && afterSend?.isIt(String(args[0]))) {
        const { run } = afterSend;
        afterSend = undefined;
        run();
      }
      return reply;
    },
  });
  [app, other] = await Promise.all([
    startLockApp({ redis: client, commandTimeout: 500 }),
    startLockApp({ redis: server.url }),
  ]);
});
beforeEach(() => {
  afterSend = undefined;
  app.logger.lines.length = 0;
});
afterAll(async () => {
  server.process.resume();
  await app.close();
  await other.close();
  client.disconnect();
  plain.disconnect();
  await server.stop();
});

function standStill(ms = STALL): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

function afterRenewal(run: () => void): void {
  afterSend = { isIt: (sha1) => sha1 === RENEW.sha1, run };
}

/** One that was handed over: its lease is a claim. */
async function handedOver(name: string, options: LockOptions = {}): Promise<Lock> {
  const before = await other.locks.acquire(name);
  const waiting = app.locks.acquire(name, { wait: 10_000, ...options });
  await eventually(async () => (await plain.llen(`lock:{${name}}:queue`)) === 1);
  await before.release();
  return waiting;
}

it('keeps a lock whose renewal was answered meanwhile, and does not count as held before that answer is read', async () => {
  const seen: unknown[] = [];
  const lock = await handedOver('kept');
  let aborted = false;
  lock.signal.addEventListener('abort', () => (aborted = true));
  afterRenewal(() => {
    standStill();
    seen.push(lock.held, lock.remaining());
  });
  await eventually(() => seen.length > 0);
  await sleep(20);
  expect(seen).toEqual([false, 0]);
  expect(lock.held).toBe(true);
  expect(lock.remaining()).toBeGreaterThan(20_000);
  expect(aborted).toBe(false);
  expect(app.logger.lines).toEqual([]);
  await lock.release();
});

it('lets the result of a body stand that ended in that very turn', async () => {
  const before = await other.locks.acquire('body');
  const result = app.locks.withLock('body', { wait: 10_000 }, async () => {
    await new Promise<void>((resolve) => {
      afterRenewal(() => {
        standStill();
        resolve();
      });
    });
    return 'done';
  });
  await eventually(async () => (await plain.llen('lock:{body}:queue')) === 1);
  await before.release();
  expect(await result).toBe('done');
});

it('lets a lock be released in that very turn', async () => {
  const lock = await handedOver('released');
  const released = new Promise<void>((resolve, reject) => {
    afterRenewal(() => {
      standStill();
      lock.release().then(resolve, reject);
    });
  });
  await released;
  expect(await plain.exists('lock:{released}')).toBe(0);
});

it.each([
  [
    'assertHeld()',
    (lock: Lock) => expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ reason: 'expired' })),
  ],
  ['signal', (lock: Lock) => expect(lock.signal.aborted).toBe(true)],
])('has lost it for good once %s has said so', async (_what, ask) => {
  const lock = await handedOver('told');
  let asked = false;
  afterRenewal(() => {
    standStill();
    ask(lock);
    asked = true;
  });
  await eventually(() => asked);
  await sleep(20);
  expect(lock.held).toBe(false);
  await expect(lock.release()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
});

it('has lost it if no answer had arrived', async () => {
  const lock = await handedOver('unanswered');
  server.process.pause();
  afterRenewal(() => standStill());
  try {
    await eventually(() => !afterSend);
    await eventually(() => lock.signal.aborted, { within: 500 });
    expect(lock.held).toBe(false);
    await expect(lock.release()).rejects.toMatchObject({ reason: 'expired' });
  } finally {
    server.process.resume();
  }
});

it.each([{ wait: 0 }, { wait: 5_000 }])('takes a lock that was granted in time, with %j', async (options) => {
  afterSend = { isIt: () => true, run: () => standStill(800) };
  const lock = await app.locks.acquire('granted', options);
  expect(lock.held).toBe(true);
  expect(app.logger.lines).toEqual([]);
  await lock.release();
});
