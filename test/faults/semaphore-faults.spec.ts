import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { SemaphoreService, type Permit } from 'nest-redis-lock';
import { EXCHANGE_PERMITS, RENEW_PERMITS } from '../../lib/backends/redis/primitives/redis-semaphore-store.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { server, startRedis } from '../support/one-redis.js';

startRedis();

let admin: Redis;
let proxy: FaultProxy;
let near: LockApp;
let far: LockApp;
let here: SemaphoreService;
/** Reaches Redis through the proxy. */
let there: SemaphoreService;

beforeAll(async () => {
  admin = new Redis(server.url);
  proxy = await FaultProxy.start(server.port);
});
afterAll(async () => {
  await proxy.stop();
  admin.disconnect();
});
beforeEach(async () => {
  near = await startLockApp({ redis: server.url, cache: false });
  far = await startLockApp({
    redis: { host: '127.0.0.1', port: proxy.port },
    cache: false,
    commandTimeout: 500,
    shutdownGrace: 100,
  });
  [here, there] = [near.app.get(SemaphoreService), far.app.get(SemaphoreService)];
});
afterEach(async () => {
  for (const key of await admin.keys('*')) expect([key, await admin.pttl(key)]).not.toEqual([key, -1]);
  proxy.heal();
  proxy.accept();
  proxy.reset();
  await Promise.all([near.close(), far.close()]);
});

/** Waits until the semaphore has this number of waiters. */
async function waiters(name: string, count: number): Promise<void> {
  await eventually(async () => (await admin.zcard(`semaphore:{${name}}:queue`)) === count);
}

describe('the queue', () => {
  it('passes over a process at its head that does not answer any more', async () => {
    const held = await here.acquire('silent', { permits: 1 });
    const first = there.acquire('silent', { permits: 1, wait: '1m' });
    first.catch(() => {});
    await waiters('silent', 1);
    const second = here.acquire('silent', { permits: 1, wait: '1m' });
    await waiters('silent', 2);
    proxy.silence();
    await held.release();
    const permit = await second;
    proxy.refuse();
    await permit.release();
    await eventually(async () => {
      // Each call looks at the head of the queue.
      await (await here.tryAcquire('silent', { permits: 1 }))?.release();
      return (await admin.exists('semaphore:{silent}:queue')) === 0;
    });
  });

  it('serves its waiters when their messages are lost', async () => {
    const held = await here.acquire('mute', { permits: 1 });
    const waiting = here.acquire('mute', { permits: 1, wait: '1m' });
    await waiters('mute', 1);
    const kills = setInterval(() => void admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub'), 20);
    await sleep(200);
    await held.release();
    await using permit = await waiting;
    clearInterval(kills);
    expect(permit.held).toBe(true);
  });

  it('is joined again after Redis has lost all its data, and the holders learn of it', async () => {
    const held = await here.acquire('lost', { permits: 1, ttl: 2_000 });
    const waiting = there.acquire('lost', { permits: 1, wait: '1m' });
    await waiters('lost', 1);
    await admin.flushall();
    await using permit = await waiting;
    await eventually(() => held.signal.aborted);
    expect(held.signal.reason).toMatchObject({ code: 'PERMIT_LOST', reason: 'taken' });
    await expect(held.release()).rejects.toMatchObject({ code: 'PERMIT_LOST' });
    expect(permit.held).toBe(true);
    expect(await here.available('lost')).toBe(0);
  });
});

describe('a holder that is cut off', () => {
  it('learns of it at its deadline, and the next one gets the permit after the lease', async () => {
    const held = await there.acquire('cut', { permits: 1, ttl: 2_000 });
    const { signal } = held;
    const waiting = here.acquire('cut', { permits: 1, wait: '1m' });
    await waiters('cut', 1);
    proxy.silence();
    await using permit = await waiting.then((next) => {
      expect(held.held).toBe(false);
      return next;
    });
    expect(permit.remaining()).toBeGreaterThan(0);
    await eventually(() => signal.aborted);
    expect(signal.reason).toMatchObject({ reason: 'expired' });
  });
});

describe('a script that is sent twice, because its reply was lost', () => {
  const taken = async (count: number) => expect((await here.available('twice', { permits: 5 })) + count).toBe(5);

  it('takes permits once', async () => {
    await (await there.acquire('twice', { permits: 5 })).release();
    const lost = proxy.lose(EXCHANGE_PERMITS.sha1, true);
    const permit = await there.acquire('twice', { permits: 5, count: 2, wait: '1m' });
    await lost;
    await taken(2);
    await permit.release();
    await taken(0);
  });

  it('renews and gives back once', async () => {
    const permit: Permit = await there.acquire('twice', { permits: 5, count: 3, ttl: 3_000 });
    await proxy.lose(RENEW_PERMITS.sha1, true);
    await sleep(3_100);
    expect(permit.held).toBe(true);
    await taken(3);
    const lost = proxy.lose(EXCHANGE_PERMITS.sha1, true);
    await permit.release();
    await lost;
    await eventually(async () => (await here.available('twice', { permits: 5 })) === 5);
  });

  it('is sent with its text after Redis has forgotten it', async () => {
    await admin.script('FLUSH');
    const permit = await here.acquire('flushed', { permits: 1 });
    const waiting = there.acquire('flushed', { permits: 1, wait: '1m' });
    await waiters('flushed', 1);
    await admin.script('FLUSH');
    await permit.release();
    await (await waiting).release();
  });
});

it('keeps one subscription for each process, whatever the number of names, and ends it with the application', async () => {
  const channels = async () =>
    ((await admin.call('PUBSUB', 'CHANNELS', 'primitive:process:????????-*')) as string[]).length;
  const names = Array.from({ length: 200 }, (_, index) => `name:${index}`);
  const held = await Promise.all(names.map((name) => here.acquire(name, { permits: 1 })));
  const waiting = names.map((name) => there.withPermit(name, { permits: 1, wait: '1m' }, async () => {}));
  await eventually(async () => (await channels()) === 1);
  await Promise.all(held.map((permit) => permit.release()));
  await Promise.all(waiting);
  expect(await channels()).toBeLessThanOrEqual(2);
  await Promise.all([near.close(), far.close()]);
  await eventually(async () => (await channels()) === 0);
});

it.each([
  ['tries once', 0, 35],
  ['waits', 300, 35],
  ['tries once, and finds its lease over,', 0, 70],
])(
  'a call that %s ends where round trips take longer than the lease, and keeps the permit from nobody',
  async (_, wait, delay) => {
    await (await there.acquire('warm', { permits: 1 })).release();
    proxy.slow({ request: delay, reply: delay });
    const slow = there.acquire('slow', { permits: 1, ttl: 100, wait }).then(
      () => 'a permit',
      (error: Error) => error.name,
    );
    expect(await Promise.race([slow, sleep(5_000)])).toMatch(/^Primitive|^Semaphore|^a permit/);
    await (await here.acquire('slow', { permits: 1, wait: 5_000 })).release();
  },
);
