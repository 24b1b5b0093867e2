import { setTimeout as sleep } from 'node:timers/promises';
import {
  fixedDelay,
  LockBackendError,
  LockTimeoutError,
  memory,
  type LockBackend,
  type LockOptions,
} from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { busy, granted, ScriptedBackend } from '../../support/scripted-backend.js';

/** A wait that is shorter than what the backend takes to answer: the answer decides, and not the clock. */

const HICCUP = 80;

describe('while Redis answers slowly', () => {
  let server: RedisServer;
  let proxy: FaultProxy;
  let slow: LockApp;
  let other: LockApp;

  beforeAll(async () => {
    server = await startRedisServer();
    proxy = await FaultProxy.start(server.port);
    slow = await startLockApp({ redis: { host: '127.0.0.1', port: proxy.port } });
    other = await startLockApp({ redis: server.url });
  });
  beforeEach(async () => {
    await slow.locks.withLock('warm', async () => {});
    await slow.locks.withLock(['warm', 'warm too'], async () => {});
    proxy.slow({ reply: HICCUP });
  });
  afterEach(() => proxy.heal());
  afterAll(async () => {
    await slow.close();
    await other.close();
    await proxy.stop();
    await server.stop();
  });

  const ways: [string, string | string[], LockOptions][] = [
    ['one name', 'one', {}],
    ['order: fifo', 'fifo', { order: 'fifo' }],
    ['a retry strategy', 'retry', { retry: fixedDelay(5) }],
    ['several names', ['some', 'others'], {}],
  ];

  describe.each(ways)('%s', (_, key, options) => {
    it.each([0, 1, 5, 30])('a free lock is granted with wait: %i', async (wait) => {
      await using lock = await slow.locks.acquire(key, { ...options, wait });
      expect(lock.held).toBe(true);
    });

    it.each([1, 5, 30])('a taken lock is busy with wait: %i, and leaves nothing behind', async (wait) => {
      await using held = await other.locks.acquire(key);
      const refused = slow.locks.acquire(key, { ...options, wait });
      await expect(refused).rejects.toBeInstanceOf(LockTimeoutError);
      expect(await slow.locks.tryAcquire(key, { ...options, wait })).toBeNull();
      await eventually(async () => (await other.locks.inspect(held.keys[0] as string))?.waiting === 0);
    });
  });

  it('is still cancelled at once', async () => {
    proxy.hold();
    const controller = new AbortController();
    const call = slow.locks.acquire('cancelled', { wait: 5, signal: controller.signal });
    await sleep(20);
    controller.abort(new Error('no more'));
    await expect(call).rejects.toThrow('no more');
  });

  it('lets one of several callers in, and tells the others that it is busy', async () => {
    const calls = [1, 2, 3].map(() => slow.locks.tryAcquire('several callers', { wait: 10 }));
    const locks = (await Promise.all(calls)).filter((lock) => lock !== null);
    expect(locks).toHaveLength(1);
    await locks[0]?.release();
  });
});

describe('an answer that is under way when the wait ends', () => {
  let backend: ScriptedBackend;
  let app: LockApp;

  beforeEach(async () => {
    backend = new ScriptedBackend();
    app = await startLockApp({ backend, commandTimeout: 300, shutdownGrace: 0 });
  });
  afterEach(async () => {
    backend.giveUp();
    await app.close();
  });

  it('grants', async () => {
    const call = app.locks.acquire('job', { wait: 5 });
    const enqueue = await backend.take('enqueue');
    await sleep(30);
    await enqueue.answer(granted());
    await (await call).release();
  });

  it('refuses', async () => {
    const call = app.locks.acquire('job', { wait: 5 }).catch((error: unknown) => error);
    const enqueue = await backend.take('enqueue');
    await sleep(30);
    await enqueue.answer(busy());
    expect(await call).toBeInstanceOf(LockTimeoutError);
  });

  it('fails', async () => {
    const call = app.locks.acquire('job', { wait: 5 }).catch((error: unknown) => error);
    await (await backend.take('enqueue')).fail();
    expect(await call).toBeInstanceOf(LockBackendError);
  });

  it('never comes: the call ends after commandTimeout, and its ticket is given up', async () => {
    const start = performance.now();
    const call = app.locks.acquire('job', { wait: 5 }).catch((error: unknown) => error);
    const { ticket } = await backend.take('enqueue');
    expect(await call).toBeInstanceOf(LockBackendError);
    expect(performance.now() - start).toBeGreaterThan(290);
    expect(backend.releases).toContain(ticket);
  });

  it('is not awaited if the lock is known to be busy', async () => {
    const call = app.locks.acquire('job', { wait: 200 }).catch((error: unknown) => error);
    await (await backend.take('enqueue')).answer(busy());
    await (await backend.take('enqueue')).answer(busy({ first: true, remaining: 5 }));
    await backend.take('beat');
    expect(await call).toBeInstanceOf(LockTimeoutError);
  });

  it('says that the tokens are used up: the next caller waits for further ones', async () => {
    const holder = app.locks.acquire('job', { wait: 5_000 });
    await (await backend.take('enqueue')).answer(granted({ count: 1 }));
    const lock = await holder;
    const next = app.locks.acquire('job', { wait: 20 });
    await lock.release();
    const mint = await backend.take('mint');
    await sleep(40);
    await mint.answer({ first: 2_000, count: 10 });
    expect((await next).fencingToken).toBe(2_000);
  });
});

it('may come from a backend without a queue, too', async () => {
  const store = memory();
  const slowed: LockBackend = Object.assign(Object.create(store) as LockBackend, {
    acquire: async (request: Parameters<LockBackend['acquire']>[0]) => {
      const answer = await store.acquire(request);
      await sleep(HICCUP);
      return answer;
    },
  });
  await using app = await startLockApp({ backend: slowed });
  const lock = await app.locks.acquire('x', { wait: 5 });
  expect(await app.locks.tryAcquire('x', { wait: 5 })).toBeNull();
  await lock.release();
});
