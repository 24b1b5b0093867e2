import { LockTimeoutError, memory, type Lock, type LockBackend, type LockService } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { quietTimeSince } from '../../support/quiet-time.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

/** Mints tokens for each name by itself, and keeps no queue. */
function separateTokens(): LockBackend {
  const store = memory();
  const next = new Map<string, number>();
  return {
    ...store,
    name: 'separate',
    traits: store.traits,
    acquire: async (request) => {
      const answer = await store.acquire(request);
      if (answer.status === 'busy') return answer;
      const fencingToken = Math.max(request.leastToken ?? 1, ...request.names.map((name) => next.get(name) ?? 1));
      for (const name of request.names) next.set(name, fencingToken + 1);
      return { ...answer, tokens: { first: fencingToken, count: 1 } };
    },
    mint: async ({ name, leastToken }) => {
      const first = Math.max(leastToken, next.get(name) ?? 1);
      next.set(name, first + 1);
      return { first, count: 1 };
    },
    renew: (requests) => store.renew(requests),
    release: (request) => store.release(request),
    inspect: (request) => store.inspect(request),
    ping: () => store.ping(),
    close: () => store.close(),
  };
}

describe.each(['redis', 'memory', 'separate'] as const)('nested holds on %s', (kind) => {
  let one: LockApp;
  let two: LockApp;
  let locks: LockService;

  beforeAll(async () => {
    const shared = kind === 'memory' ? memory() : separateTokens();
    const options = () => (kind === 'redis' ? { redis: server.url } : { backend: shared });
    [one, two] = await Promise.all([startLockApp(options()), startLockApp(options())]);
    locks = one.locks;
  });
  afterAll(async () => {
    await one.close();
    await two.close();
  });

  /** What a protected resource was shown, in order. */
  class Resource {
    private highest = 0;
    readonly refused: string[] = [];

    write(who: string, { fencingToken }: Pick<Lock, 'fencingToken'>): void {
      if (fencingToken < this.highest) this.refused.push(`${who}: ${fencingToken} after ${this.highest}`);
      this.highest = Math.max(this.highest, fencingToken);
    }
  }

  /** Lets the tokens of a name run ahead of those of others. */
  async function ahead(name: string, count = 20): Promise<void> {
    for (let hold = 0; hold < count; hold++) await locks.withLock(name, async () => {});
  }

  it('of further names show tokens that neither the outer hold nor the next holders fall behind', async () => {
    const resource = new Resource();
    await ahead('b');
    const writes = async (who: string) => locks.withLock('a', async (lock) => resource.write(who, lock));
    const began = new Gate();
    const first = locks.withLock('a', async (outer) => {
      resource.write('outer before', outer);
      began.open();
      await eventually(async () => ((await locks.inspect('a'))?.waiting ?? 0) >= 4);
      await locks.withLock(['a', 'b'], async (inner) => resource.write('inner', inner));
      resource.write('outer after', outer);
      await locks.withLock('a', async (again) => resource.write('nested again', again));
    });
    await began.opened;
    await Promise.all([first, ...['1', '2', '3', '4'].map((each) => writes(`local ${each}`))]);
    await two.locks.withLock('a', async (lock) => resource.write('elsewhere', lock));
    await locks.withLock('a', async (lock) => resource.write('later', lock));
    expect(resource.refused).toEqual([]);
  });

  it('of further names show no token, while they last, that the holds around them fall behind', async () => {
    const resource = new Resource();
    await ahead('b');
    await locks.withLock('a', async (outer) => {
      const inner = await locks.acquire(['a', 'b']);
      resource.write('inner', inner);
      resource.write('outer beside it', outer);
      await inner.release();
      await ahead('b');
      await locks.withLock('z', async (between) => {
        await locks.withLock(['a', 'b', 'z'], async (innermost) => {
          resource.write('innermost', innermost);
          resource.write('between', between);
          resource.write('outermost', outer);
        });
      });
    });
    expect(resource.refused).toEqual([]);
  });

  it('of further names, one in another, show one token to all that each of them protects', async () => {
    const resources = { c: new Resource(), d: new Resource(), e: new Resource() };
    await ahead('d', 10);
    await ahead('e', 30);
    await locks.withLock('c', async (outer) => {
      await locks.withLock(['c', 'd'], async (inner) => {
        resources.d.write('inner', inner);
        await locks.withLock(['d', 'e'], async (innermost) => {
          resources.d.write('innermost', innermost);
          resources.e.write('innermost', innermost);
        });
        resources.c.write('inner', inner);
        resources.d.write('inner after', inner);
      });
      resources.c.write('outer', outer);
    });
    for (const name of ['c', 'd', 'e'] as const) {
      await two.locks.withLock(name, async (lock) => resources[name].write(`next ${name}`, lock));
    }
    expect([resources.c.refused, resources.d.refused, resources.e.refused]).toEqual([[], [], []]);
  });

  it('keep one token through re-entry of one name of several', async () => {
    await ahead('g');
    const holder = await two.locks.acquire('g');
    const several = locks.withLock(['f', 'g'], async (outer) => [
      outer.fencingToken,
      await locks.withLock('f', async (inner) => inner.fencingToken),
      await locks.withLock('g', async (inner) => inner.fencingToken),
    ]);
    await eventually(async () => ((await locks.inspect('g'))?.waiting ?? 0) > 0);
    await holder.release();
    expect(new Set(await several).size).toBe(1);
  });

  it.each([['own'], [['free', 'own']]])('that must not re-enter are refused at once: %j', async (names) => {
    await locks.withLock('own', async () => {
      const started = performance.now();
      const options = { reentrant: false, wait: 30_000 };
      const error: unknown = await locks.withLock(names, options, async () => {}).catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(LockTimeoutError);
      expect((error as Error).message).toMatch(/inside of the hold of "own".*leave "reentrant: false" out/);
      expect(quietTimeSince(started)).toBeLessThan(10_000);
      expect(await locks.tryAcquire(names, { reentrant: false })).toBeNull();
      expect(await locks.isLocked('free')).toBe(false);
    });
  });

  it('that must not re-enter wait where the hold belongs to others', async () => {
    const held = await two.locks.acquire('theirs');
    await locks.withLock('mine', async () => {
      const waiting = locks.withLock('theirs', { reentrant: false }, async () => 'entered');
      await eventually(async () => (await locks.inspect('theirs'))?.waiting === 1);
      await held.release();
      expect(await waiting).toBe('entered');
    });
  });
});
