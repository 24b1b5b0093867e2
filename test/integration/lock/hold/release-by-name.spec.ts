import { AsyncResource } from 'node:async_hooks';
import { Agent, createServer, get } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { LockKeyError, LockLostError, type LockService, memory } from 'nest-redis-lock';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

describe.each(['redis', 'memory'] as const)('release by name on %s', (kind) => {
  let one: LockApp;
  let two: LockApp;
  let locks: LockService;

  beforeAll(async () => {
    const shared = memory();
    const options = () => (kind === 'redis' ? { redis: server.url } : { backend: shared });
    [one, two] = await Promise.all([startLockApp(options()), startLockApp(options())]);
    locks = one.locks;
  });
  afterAll(async () => {
    await one.close();
    await two.close();
  });

  /** A request that lost its lock by name, while the next holder is inside. */
  async function lateRelease(name: string, next: () => Promise<unknown>) {
    await locks.acquire(name, { ttl: 150, renew: false });
    await eventually(async () => !(await locks.isLocked(name)));
    const running = next();
    await eventually(() => locks.isLocked(name));
    const told: unknown = await locks.release(name).catch((error: unknown) => error);
    return { told, running };
  }

  it('frees nothing that an earlier request of the same connection has', async () => {
    const http = createServer((request, response) => {
      const call = request.url === '/take' ? locks.acquire('connected') : locks.release('connected');
      call.then(
        () => response.end('done'),
        (error: Error) => response.end(error.constructor.name),
      );
    });
    await new Promise<void>((resolve) => http.listen(0, resolve));
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const { port } = http.address() as AddressInfo;
    const ask = (path: string) =>
      new Promise<string>((resolve) => get({ port, path, agent }, (response) => resolve(text(response))));
    expect(await ask('/take')).toBe('done');
    expect(await ask('/release')).toBe('LockKeyError');
    expect(await locks.isLocked('connected')).toBe(true);
    agent.destroy();
    await new Promise((resolve) => http.close(resolve));
    await locks.forceRelease('connected');
  });

  it('frees nothing that an earlier tick of the same interval has, nor what was acquired before that', async () => {
    const outcomes: Promise<unknown>[] = [];
    await new Promise<void>((done) => {
      const interval = setInterval(() => {
        if (outcomes.length === 0) outcomes.push(locks.acquire('tick 1'), locks.acquire('tick 1 too'));
        else if (outcomes.length === 2) outcomes.push(locks.release('tick 1 too').catch((error: unknown) => error));
        else if (outcomes.length === 3) outcomes.push(locks.acquire('tick 3').then(() => locks.release('tick 3')));
        else {
          outcomes.push(locks.release('tick 1').catch((error: unknown) => error));
          clearInterval(interval);
          done();
        }
      }, 5);
    });
    const settled = await Promise.all(outcomes);
    expect(settled[2]).toBeInstanceOf(LockKeyError);
    expect(settled[4]).toBeInstanceOf(LockKeyError);
    await Promise.all(['tick 1', 'tick 1 too'].map((name) => locks.forceRelease(name)));
    expect(await locks.isLocked('tick 3')).toBe(false);
  });

  it('frees nothing of the next holder when its own lock has expired, be that in a scope', async () => {
    const leave = new Gate();
    const { told, running } = await lateRelease('scoped', () =>
      locks.withLock('scoped', async (lock) => {
        await leave.opened;
        return lock.held;
      }),
    );
    expect(told).toBeInstanceOf(LockLostError);
    expect(await two.locks.tryAcquire('scoped')).toBeNull();
    leave.open();
    await expect(running).resolves.toBe(true);
  });

  it('frees nothing of the next holder when its own lock has expired, be that acquired likewise', async () => {
    const leave = new Gate();
    const request = async () => {
      await locks.acquire('bare');
      await leave.opened;
      await locks.release('bare');
    };
    // Another request begins elsewhere than in the code of the first.
    const { told, running } = await lateRelease('bare', () => new AsyncResource('request').runInAsyncScope(request));
    expect(told).toBeInstanceOf(LockLostError);
    expect(await two.locks.tryAcquire('bare')).toBeNull();
    leave.open();
    await running;
    expect(await locks.isLocked('bare')).toBe(false);
  });

  it('tells two parallel calls of one caller apart', async () => {
    const leave = new Gate();
    const late = async () => {
      await locks.acquire('apart', { ttl: 150, renew: false });
      await eventually(async () => (await locks.inspect('apart'))?.waiting === 0 && (await locks.isLocked('apart')));
      await sleep(200);
      await locks.release('apart');
    };
    const next = async () => {
      const lock = await locks.acquire('apart');
      await leave.opened;
      const held = lock.held;
      await locks.release('apart');
      return held;
    };
    const [first, second] = [late(), next()];
    await expect(first).rejects.toBeInstanceOf(LockLostError);
    expect(await two.locks.tryAcquire('apart')).toBeNull();
    leave.open();
    await expect(second).resolves.toBe(true);
    expect(await locks.isLocked('apart')).toBe(false);
  });

  it('is followed through awaits and into the calls made after', async () => {
    const finish = async () => {
      await sleep(1);
      await locks.release('followed');
    };
    await locks.acquire('followed');
    await sleep(1);
    expect(await locks.isLocked('followed')).toBe(true);
    await Promise.resolve().then(finish);
    expect(await locks.isLocked('followed')).toBe(false);
  });

  it('frees what tryAcquire and acquire got, of one name or several, in any order', async () => {
    await locks.tryAcquire('first');
    await locks.acquire(['second', 'third']);
    await locks.acquire('fourth');
    await locks.release('first');
    await expect(locks.release('second')).rejects.toBeInstanceOf(LockKeyError);
    await locks.release(['third', 'second']);
    await locks.release('fourth');
    for (const name of ['first', 'second', 'third', 'fourth']) expect(await locks.isLocked(name)).toBe(false);
  });

  it('says who holds what another context acquired, and frees nothing', async () => {
    const held = await new AsyncResource('elsewhere').runInAsyncScope(() => locks.acquire('foreign'));
    const error: unknown = await locks.release('foreign').catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(LockKeyError);
    expect((error as LockKeyError).message).toContain(`"foreign" is held by ${held.owner}`);
    expect((error as LockKeyError).keys).toEqual(['foreign']);
    expect(held.held).toBe(true);
    await held.release();
    await expect(locks.release('foreign')).rejects.toThrow(/nobody holds "foreign"/);
  });

  it('frees nothing in the "finally" of a caller that did not get the lock', async () => {
    const leave = new Gate();
    const holder = locks.withLock('refused', () => leave.opened);
    await eventually(() => locks.isLocked('refused'));
    const request = async () => {
      try {
        await locks.acquire('refused', { wait: 20 });
      } finally {
        await locks.release('refused');
      }
    };
    await expect(request()).rejects.toBeInstanceOf(LockKeyError);
    expect(await two.locks.tryAcquire('refused')).toBeNull();
    leave.open();
    await holder;
  });

  it('does not fall back to an earlier hold of the name when the last call for it got nothing', async () => {
    const held = await locks.acquire('earlier');
    expect(await locks.tryAcquire('earlier')).toBeNull();
    await expect(locks.release('earlier')).rejects.toBeInstanceOf(LockKeyError);
    expect(held.held).toBe(true);
    await held.release();
  });

  it('ends the innermost hold inside of a scope, and not the lease of the one around it', async () => {
    await locks.withLock('nested', async (outer) => {
      await locks.withLock('nested', async (inner) => {
        await locks.release('nested');
        expect(inner.held).toBe(false);
      });
      expect(outer.held).toBe(true);
      expect(await two.locks.tryAcquire('nested')).toBeNull();
    });
    await expect(locks.release('nested')).rejects.toBeInstanceOf(LockKeyError);
  });

  it('remembers what it acquired through a thousand other acquisitions of one context', async () => {
    await locks.acquire('kept');
    for (let count = 0; count < 1_000; count++) {
      await locks.acquire(`passing:${count}`);
      await locks.release(`passing:${count}`);
    }
    await locks.release('kept');
    expect(await locks.isLocked('kept')).toBe(false);
  });
});

describe.each(['redis', 'memory'] as const)('a lock that is taken away on %s', (kind) => {
  let one: LockApp;
  let two: LockApp;

  beforeAll(async () => {
    const shared = memory();
    const options = () => (kind === 'redis' ? { redis: server.url } : { backend: shared });
    [one, two] = await Promise.all([startLockApp(options()), startLockApp(options())]);
  });
  afterAll(async () => {
    await one.close();
    await two.close();
  });

  it.each(['one', 'two'] as const)('by force from service %s never lets withLock resolve', async (thief) => {
    let seen: unknown;
    const result = one.locks.withLock('forced', async (lock) => {
      await (thief === 'one' ? one : two).locks.forceRelease('forced');
      if (thief === 'one') seen = lock.signal.reason;
      return 'done';
    });
    await expect(result).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'taken' });
    if (thief === 'one') expect(seen).toBeInstanceOf(LockLostError);
  });

  it('is reported by the hold of several names and by the outer of two nested holds', async () => {
    const several = one.locks.withLock(['some', 'other'], () => two.locks.forceRelease('other'));
    await expect(several).rejects.toBeInstanceOf(LockLostError);
    const nested = one.locks.withLock('outer', () =>
      one.locks.withLock('outer', () => two.locks.forceRelease('outer')),
    );
    await expect(nested).rejects.toBeInstanceOf(LockLostError);
    expect(await one.locks.isLocked('some')).toBe(false);
  });

  it('is reported although the body released by hand and swallowed the error', async () => {
    const result = one.locks.withLock('by-hand', async (lock) => {
      await two.locks.forceRelease('by-hand');
      await lock.release().catch(() => {});
      return 'done';
    });
    await expect(result).rejects.toBeInstanceOf(LockLostError);
  });
});
