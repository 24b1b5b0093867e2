import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import {
  CountDownLatch,
  fixedDelay,
  LockBackendError,
  type LockOptions,
  LockTimeoutError,
  memory,
  SemaphoreService,
} from 'nest-redis-lock';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { asBusy, asGranted, CLAIM, QueuePeer } from '../../../support/queue-peer.js';
import { busy, granted, ScriptedBackend } from '../../../support/scripted-backend.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';
import { replacing } from '../../../support/open-backend.js';

describe('a short wait', () => {
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
      app = await startLockApp({ backend, shutdownGrace: 0 });
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
      const call = app.locks.acquire('job', { wait: 5, commandTimeout: 300 }).catch((error: unknown) => error);
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
    const slowed = replacing(memory(), (store) => ({
      acquire: async (request) => {
        const answer = await store.acquire(request);
        await sleep(HICCUP);
        return answer;
      },
    }));
    await using app = await startLockApp({ backend: slowed });
    const lock = await app.locks.acquire('x', { wait: 5 });
    expect(await app.locks.tryAcquire('x', { wait: 5 })).toBeNull();
    await lock.release();
  });
});

describe('a waiter that is not reached', () => {
  /** Waiters that no message reaches: their process is dead, stands still, or makes its connection anew. */

  let server: RedisServer;
  let plain: Redis;
  let name: string;
  let peers: QueuePeer[];

  beforeAll(async () => {
    server = await startRedisServer();
    plain = new Redis(server.url);
  });
  beforeEach(() => {
    name = randomUUID();
    peers = [];
  });
  afterEach(async () => {
    for (const { backend } of peers) await backend.close();
    await plain.flushall();
  });
  afterAll(async () => {
    plain.disconnect();
    await server.stop();
  });

  async function peer(): Promise<QueuePeer> {
    return unreachable().listen();
  }

  function unreachable(): QueuePeer {
    const made = new QueuePeer(plain);
    peers.push(made);
    return made;
  }

  const owner = () => plain.get(`lock:{${name}}`);
  const leaseLeft = () => plain.pttl(`lock:{${name}}`);
  const queued = () => plain.lrange(`lock:{${name}}:queue`, 0, -1);

  /** Sets the age (ms) of the waiter's last heartbeat. */
  async function heardOf(ticket: string, ago: number): Promise<void> {
    const [entry] = await plain.hmget(`lock:{${name}}:waiters`, ticket);
    const [, ...rest] = (entry as string).split(':');
    const [seconds, micros] = (await plain.time()).map(Number) as [number, number];
    const alive = Math.floor(seconds * 1_000 + micros / 1_000) - ago + 5_000;
    await plain.hset(`lock:{${name}}:waiters`, ticket, [alive, ...rest].join(':'));
  }

  /** One owns the name, and the unreachable one waits for it. */
  async function ownerAndUnreachable() {
    const [u, w] = [unreachable(), await peer()];
    const [u1, w1] = [u.ticket(), w.ticket()];
    asGranted(await w.enqueue(name, w1));
    asBusy(await u.enqueue(name, u1));
    return { u, u1, w, w1 };
  }

  describe('a waiter of a dead process', () => {
    it('is never granted, however often its turn comes, and delays nobody', async () => {
      const { u1, w, w1 } = await ownerAndUnreachable();
      const v = await peer();
      let holder = { peer: w, ticket: w1 };
      for (let turn = 0; turn < 6; turn++) {
        const by = turn % 2 ? w : v;
        const next = { peer: by, ticket: by.ticket() };
        asBusy(await next.peer.enqueue(name, next.ticket));
        await holder.peer.release(name, holder.ticket);
        expect(await owner()).toBe(next.ticket);
        await next.peer.granted(next.ticket);
        holder = next;
      }
      expect(await queued()).toEqual([u1]);
    });

    it.each(['that waits', 'that tries once'])('does not keep the lock from a caller %s', async (how) => {
      const { u1, w, w1 } = await ownerAndUnreachable();
      await w.release(name, w1);
      expect(await owner()).toBeNull();
      for (let turn = 0; turn < 4; turn++) {
        const next = w.ticket();
        const answer = how === 'that waits' ? await w.enqueue(name, next) : await w.tryOnce(name, next);
        expect(asGranted(answer).waiting).toBe(1);
        await w.release(name, next);
      }
      expect(await queued()).toEqual([u1]);
    });

    it('is not granted either where its process had lost its channel before it died', async () => {
      const { u, u1, w, w1 } = await ownerAndUnreachable();
      await w.release(name, w1);
      const w2 = w.ticket();
      asGranted(await w.enqueue(name, w2));
      expect(asBusy(await u.beat(name, u1)).unreached).toBe(true);
      await heardOf(u1, 300);
      await w.release(name, w2);
      expect(await owner()).toBeNull();
    });

    it('with many tickets is tried once for each hand-over', async () => {
      const { u, w, w1 } = await ownerAndUnreachable();
      for (let i = 0; i < 20; i++) asBusy(await u.enqueue(name, u.ticket()));
      const before = /cmdstat_publish:calls=(\d+)/.exec(await plain.info('commandstats'))?.[1] ?? 0;
      await w.release(name, w1);
      const after = /cmdstat_publish:calls=(\d+)/.exec(await plain.info('commandstats'))?.[1] ?? 0;
      expect(Number(after) - Number(before)).toBe(1);
      expect((await queued()).length).toBe(21);
    });
  });

  describe('a live waiter that no message reaches', () => {
    it('keeps its place, and is granted in its turn once it was heard of again', async () => {
      const { u, u1, w, w1 } = await ownerAndUnreachable();
      const v = await peer();
      const [v1, v2, w2] = [v.ticket(), v.ticket(), w.ticket()];
      await v.enqueue(name, v1);
      await w.release(name, w1);
      await v.granted(v1);
      expect(await queued()).toEqual([u1]);
      await w.enqueue(name, w2);
      await v.enqueue(name, v2);
      expect(asBusy(await u.beat(name, u1))).toMatchObject({ first: true, unreached: true });
      await v.release(name, v1);
      expect(await owner()).toBe(u1);
      expect(await leaseLeft()).toBeLessThanOrEqual(CLAIM);
      expect(await queued()).toEqual([w2, v2]);
      expect(asGranted(await u.beat(name, u1))).toMatchObject({ waiting: 2 });
    });

    it('finds the lock free with its next heartbeat when it is alone', async () => {
      const { u, u1, w, w1 } = await ownerAndUnreachable();
      await w.release(name, w1);
      expect(await owner()).toBeNull();
      expect(await queued()).toEqual([u1]);
      expect(asGranted(await u.beat(name, u1)).remaining).toBeLessThanOrEqual(CLAIM);
      expect(await owner()).toBe(u1);
      expect(await queued()).toEqual([]);
    });

    it('finds the lock free with its next heartbeat also behind others that are dead', async () => {
      const { u1, w, w1 } = await ownerAndUnreachable();
      const other = unreachable();
      const o1 = other.ticket();
      await other.enqueue(name, o1);
      await w.release(name, w1);
      expect(await owner()).toBeNull();
      expect(asGranted(await other.beat(name, o1)).waiting).toBe(1);
      expect(await queued()).toEqual([u1]);
    });

    it('is reached again when it has subscribed anew, and then granted by a message', async () => {
      const { u, u1, w, w1 } = await ownerAndUnreachable();
      const w2 = w.ticket();
      await w.release(name, w1); // To nobody.
      await u.listen();
      expect(asBusy(await w.enqueue(name, w2)).owner).toBe(u1);
      expect(await u.granted(u1)).toMatchObject({ waiting: 0 });
    });

    it('that has subscribed anew is as any other after its next heartbeat', async () => {
      const { u, u1, w, w1 } = await ownerAndUnreachable();
      const w2 = w.ticket();
      await w.release(name, w1);
      asGranted(await w.enqueue(name, w2));
      await u.listen();
      expect(asBusy(await u.beat(name, u1)).unreached).toBe(false);
      await u.backend.close();
      await sleep(20);
      // Now it is dead: having been heard of since it was passed over does not count any more.
      await w.release(name, w2);
      expect(await owner()).toBeNull();
    });
  });

  describe('a waiter that was not heard of for long', () => {
    it('is passed over although its channel is open, and keeps its place', async () => {
      const [a, b, c] = [await peer(), await peer(), await peer()];
      const [a1, b1, c1] = [a.ticket(), b.ticket(), c.ticket()];
      asGranted(await a.enqueue(name, a1));
      await b.enqueue(name, b1);
      await c.enqueue(name, c1);
      await heardOf(b1, 1_600);
      await a.release(name, a1);
      expect(await owner()).toBe(c1);
      asBusy(await b.beat(name, b1));
      await c.release(name, c1);
      expect(await owner()).toBe(b1);
    });
  });
});

describe('a wait that is given up for a reason of which nothing can be read, as a revoked proxy', () => {
  const { proxy: unreadable, revoke } = Proxy.revocable({}, {});
  beforeAll(revoke);

  let app: LockApp;
  beforeAll(async () => {
    app = await startLockApp({ backend: memory(), cache: false });
    const { locks } = app;
    await locks.acquire('held', { ttl: '1h' });
    await app.app.get(SemaphoreService).acquire('held', { permits: 1 });
    await app.app.get(CountDownLatch).define('held', { count: 1, ttl: '1h' });
  });
  afterAll(() => app.close());

  it.each<[string, (signal: AbortSignal) => Promise<unknown>]>([
    ['a lock', (signal) => app.locks.acquire('held', { wait: Infinity, signal })],
    ['a lock in one try', (signal) => app.locks.tryAcquire('held', { wait: Infinity, signal })],
    ['several locks', (signal) => app.locks.acquire(['free', 'held'], { wait: Infinity, signal })],
    ['a permit', (signal) => app.app.get(SemaphoreService).acquire('held', { permits: 1, wait: Infinity, signal })],
    ['a latch', (signal) => app.app.get(CountDownLatch).await('held', { wait: Infinity, signal })],
  ])('ends: %s', async (_what, ask) => {
    const left = new AbortController();
    const asked = ask(left.signal).catch((reason: unknown) => reason === unreadable);
    left.abort(unreadable);
    expect(await asked).toBe(true);
  });
});
