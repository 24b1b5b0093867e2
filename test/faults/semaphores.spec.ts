import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { jest } from '@jest/globals';
import { Redis } from 'ioredis';
import { type Permit, SemaphoreService } from 'nest-redis-lock';
import { EXCHANGE_PERMITS, RENEW_PERMITS } from '../../lib/backends/redis/primitives/redis-semaphore-store.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { Gate } from '../support/gate.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { server, startRedis } from '../support/one-redis.js';
import { semaphoresWith } from '../support/lock-services.js';

describe('on Redis', () => {
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
});

describe('a call', () => {
  it('waits for no answer to a release beyond the lease', async () => {
    const answer = new Gate();
    const released: string[] = [];
    await using app = await semaphoresWith(
      (inner) => ({
        release: async (request) => {
          released.push(request.name);
          await answer.opened;
          return inner.release(request);
        },
      }),
      { commandTimeout: 3_600_000 },
    );
    expect(await app.semaphores.withPermit('kept', { permits: 1, ttl: 500 }, async () => 'done')).toBe('done');
    const late = await app.semaphores.acquire('late', { permits: 1, ttl: 500 });
    const { signal } = late;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 700);
    await expect(late.release()).rejects.toMatchObject({ code: 'PERMIT_LOST' });
    expect(signal.aborted).toBe(true);
    expect(released).toContain('late');
    answer.open();
  });

  it('asks for each of many waiters in the end', async () => {
    const asked = new Set<string>();
    await using app = await semaphoresWith((inner) => ({
      beat: (request) => {
        for (const { ticket } of request.waiters) asked.add(ticket);
        expect(request.waiters.length).toBeLessThanOrEqual(100);
        return inner.beat(request);
      },
    }));
    await using _ = await app.semaphores.acquire('many', { permits: 1 });
    const abort = new AbortController();
    const options = { permits: 1, wait: '2m', signal: abort.signal } as const;
    const waiting = Array.from({ length: 120 }, () => app.semaphores.acquire('many', options));
    const ended = Promise.allSettled(waiting);
    await eventually(() => asked.size === 120);
    abort.abort();
    await ended;
  });

  it('gives back what is granted after its caller gave up, even if the release overtook the grant', async () => {
    const arrive = new Gate();
    await using app = await semaphoresWith((inner) => ({
      acquire: async (request) => {
        await arrive.opened;
        return inner.acquire(request);
      },
    }));
    await expect(app.semaphores.tryAcquire('late', { permits: 1 })).rejects.toMatchObject({
      code: 'PRIMITIVE_BACKEND',
    });
    arrive.open();
    await eventually(async () => (await app.semaphores.available('late')) !== null);
    await eventually(async () => (await app.semaphores.available('late')) === 1);
  });

  it('takes a ticket out of the queue that entered it after its caller gave up', async () => {
    const arrive = new Gate();
    let released = 0;
    await using app = await semaphoresWith((inner) => ({
      acquire: async (request) => {
        if (request.queues) await arrive.opened;
        return inner.acquire(request);
      },
      release: async (request) => {
        const answer = await inner.release(request);
        released += 1;
        return answer;
      },
    }));
    const held = await app.semaphores.tryAcquire('ghost', { permits: 1 });
    const controller = new AbortController();
    const waiting = app.semaphores.acquire('ghost', { permits: 1, wait: '30s', signal: controller.signal });
    controller.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await eventually(() => released === 1);
    arrive.open();
    await eventually(() => released === 2);
    await held?.release();
    expect(await app.semaphores.tryAcquire('ghost', { permits: 1 })).not.toBeNull();
  });

  it('does not enter with a grant whose message arrived after its lease, and queues again', async () => {
    const delivered = new Gate();
    let [asked, renewed] = [0, 0];
    await using app = await semaphoresWith((inner) => ({
      acquire: async (request) => {
        if (request.queues) asked += 1;
        return inner.acquire(request);
      },
      renew: async (request) => {
        renewed += 1;
        return inner.renew(request);
      },
      // Never tells a waiter of its grant.
      beat: () => new Promise(() => {}),
      listen: (listener) =>
        inner.listen({
          process: listener.process,
          onConnected: () => listener.onConnected(),
          onGrant: (ticket, grant) => void delivered.opened.then(() => listener.onGrant(ticket, grant)),
        }),
    }));
    const { semaphores } = app;
    // With another `ttl`, so that it is not passed on within the process.
    const held = await semaphores.tryAcquire('message', { permits: 1, ttl: '1m' });
    let entered = false;
    const waiting = semaphores.acquire('message', { permits: 1, wait: '1m' }).then((permit) => {
      entered = true;
      return permit;
    });
    await eventually(() => asked === 1);
    await held?.release();
    // The claim has ended once another call gets the permit.
    const rival = await eventually(() => semaphores.tryAcquire('message', { permits: 1 }));
    delivered.open();
    await eventually(() => renewed === 1 && asked === 2);
    expect(entered).toBe(false);
    await rival.release();
    await (await waiting).release();
  });

  it('sends no more heartbeats for a call that has asked twice, once it has left', async () => {
    const delivered = new Gate();
    let [asked, beats] = [0, 0];
    await using app = await semaphoresWith((inner) => ({
      acquire: async (request) => {
        const answer = await inner.acquire(request);
        if (request.queues) asked += 1;
        return answer;
      },
      renew: () => Promise.reject(new Error('the connection is lost')),
      beat: () => {
        beats += 1;
        return new Promise(() => {});
      },
      listen: (listener) =>
        inner.listen({
          process: listener.process,
          onConnected: () => listener.onConnected(),
          onGrant: (ticket, grant) => void delivered.opened.then(() => listener.onGrant(ticket, grant)),
        }),
    }));
    const { semaphores } = app;
    const held = await semaphores.tryAcquire('left', { permits: 1, ttl: '1m' });
    const abort = new AbortController();
    const waiting = semaphores.acquire('left', { permits: 1, wait: '1m', signal: abort.signal });
    await eventually(() => asked === 1);
    await held?.release();
    // The claim has ended once another call gets the permit.
    const rival = await eventually(() => semaphores.tryAcquire('left', { permits: 1, ttl: '1m' }));
    delivered.open();
    await eventually(() => asked === 2);
    abort.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    const before = beats;
    await sleep(1_500);
    expect(beats).toBe(before);
    await rival.release();
  });

  it('does not enter with the message of an earlier place in the queue, whose claim has ended', async () => {
    const [delivered, answers] = [new Gate(), new Gate()];
    let [asked, queued, opened] = [0, 0, false];
    void answers.opened.then(() => (opened = true));
    await using app = await semaphoresWith((inner) => ({
      acquire: async (request) => {
        if (!request.queues || request.name === 'other') return inner.acquire(request);
        asked += 1;
        // Gets a place with its first request, whose answer is lost, and another place with the last one.
        const answer = asked === 1 || opened ? await inner.acquire(request) : undefined;
        if (!answer || asked === 1) throw new Error('no answer');
        queued += 1;
        return answer;
      },
      beat: () => new Promise(() => {}),
      listen: (listener) =>
        inner.listen({
          process: listener.process,
          onConnected: () => listener.onConnected(),
          onGrant: (ticket, grant) => void delivered.opened.then(() => listener.onGrant(ticket, grant)),
        }),
    }));
    const { semaphores } = app;
    // With another waiter, the process listens to messages already.
    const other = await semaphores.tryAcquire('other', { permits: 1 });
    const listening = semaphores.acquire('other', { permits: 1, wait: '1m' });
    // With another `ttl`, so that it is not passed on within the process.
    const held = await semaphores.tryAcquire('message', { permits: 1, ttl: '1m' });
    let entered = false;
    const waiting = semaphores.acquire('message', { permits: 1, wait: '1m' }).then((permit) => {
      entered = true;
      return permit;
    });
    await eventually(() => asked === 1);
    await held?.release();
    const rival = await eventually(() => semaphores.tryAcquire('message', { permits: 1 }));
    answers.open();
    await eventually(() => queued === 1);
    delivered.open();
    await eventually(() => new Promise((resolve) => setImmediate(resolve, true)));
    expect(entered).toBe(false);
    await rival.release();
    await (await waiting).release();
    await other?.release();
    await (await listening).release();
  });

  it('sends nothing more for a call that tries once and finds no permit', async () => {
    let released = 0;
    await using app = await semaphoresWith((inner) => ({
      release: async (request) => {
        released += 1;
        return inner.release(request);
      },
    }));
    await using _ = await app.semaphores.acquire('busy', { permits: 1 });
    expect(await app.semaphores.tryAcquire('busy', { permits: 1 })).toBeNull();
    expect(released).toBe(0);
  });

  it('takes no permits after the application has ended, where it took none before', async () => {
    const app = await semaphoresWith();
    await app.close();
    const late = app.semaphores.acquire('late', { permits: 1 });
    await expect(late).rejects.toThrow('the application is shutting down');
  });

  it('repeats releases that fail a few at a time, until each has succeeded', async () => {
    const CALLS = 100;
    const released = new Set<string>();
    let [away, attempts, underWay, most] = [true, 0, 0, 0];
    await using app = await semaphoresWith((inner) => ({
      acquire: () => new Promise(() => {}),
      release: async (request) => {
        attempts += 1;
        if (attempts > CALLS) most = Math.max(most, (underWay += 1));
        await sleep(50);
        if (attempts > CALLS) underWay -= 1;
        if (away) throw new Error('away');
        released.add(request.ticket);
        return inner.release(request);
      },
    }));
    const { semaphores } = app;
    const failing = Array.from({ length: CALLS }, (_, index) => semaphores.tryAcquire(`name:${index}`, { permits: 1 }));
    for (const { status } of await Promise.allSettled(failing)) expect(status).toBe('rejected');
    await eventually(() => attempts > 2 * CALLS);
    away = false;
    await eventually(() => released.size === CALLS);
    expect(most).toBeLessThanOrEqual(16);
  });

  it('does not report a permit as unreleased that the shutdown has given back', async () => {
    let ended = false;
    const app = await semaphoresWith((inner) => ({
      release: (request) => (ended ? Promise.reject(new Error('closed')) : inner.release(request)),
    }));
    const permit = await app.semaphores.acquire('end', { permits: 1 });
    await app.close();
    ended = true;
    await expect(permit.release()).rejects.toMatchObject({ code: 'PERMIT_LOST', reason: 'shutdown' });
    await new Promise(setImmediate);
    expect(app.logger.matching(/never confirmed/)).toEqual([]);
  });

  it('keeps nothing of the permits whose bodies have ended, where each body starts the next one', async () => {
    const entered = jest.spyOn(AsyncLocalStorage.prototype, 'run');
    try {
      await using app = await semaphoresWith();
      const { semaphores } = app;
      const last = new Gate();
      let bodies = 0;
      const body = async (): Promise<void> => {
        bodies += 1;
        if (bodies === 10) return last.open();
        // Begins in the context of this body, which ends meanwhile.
        void semaphores.withPermit('chain', { permits: 2 }, body);
        await eventually(async () => (await semaphores.available('chain')) === 0);
      };
      await semaphores.withPermit('chain', { permits: 2 }, body);
      await last.opened;
      expect(Math.max(...entered.mock.calls.map(([frame]) => depthOf(frame)))).toBeLessThan(4);
    } finally {
      entered.mockRestore();
    }
  });

  /** How many frames are linked from this one on. */
  function depthOf(frame: unknown): number {
    if (typeof frame !== 'object' || frame === null) return 0;
    return 1 + depthOf((frame as { readonly outer?: unknown }).outer);
  }

  it('answers with the permit around the ended one in work that outlives its body', async () => {
    await using app = await semaphoresWith();
    const { semaphores } = app;
    const ended = new Gate();
    await semaphores.withPermit('outer', { permits: 1 }, async (outer) => {
      let later: Promise<unknown> | undefined;
      await semaphores.withPermit('inner', { permits: 1 }, async () => {
        later = ended.opened.then(() => semaphores.current());
      });
      ended.open();
      expect(await later).toBe(outer);
    });
  });
});
