import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  DistributedLock,
  fixedDelay,
  type LockBackend,
  LockConfigError,
  LockLostError,
  type LockOptions,
  memory,
  PermitLostError,
  PrimitiveConfigError,
  redis,
  RedisLockModule,
  Semaphore,
  SemaphoreService,
} from 'nest-redis-lock';
import type { EnqueueRequest, LockStore } from 'nest-redis-lock/backend';
import type { PrimitiveStoreProvider } from '../../../lib/contracts/primitive-stores.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { replacing, withMembers } from '../../support/open-backend.js';
import { RecordedEvents } from '../../support/recorded-events.js';
import { RecordingLogger } from '../../support/recording-logger.js';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

type Release = LockStore['release'];

/** A store whose releases the test holds back: none has left this process before `open`. */
class Held {
  readonly backend: LockBackend;
  /** How many releases wait for `open`. */
  waiting = 0;
  /** How often the process has asked for a name. */
  asked = 0;
  private gate: Gate | undefined = new Gate();

  /** `traits` are those of a store that need not keep the order of requests, unless `inOrder`. */
  constructor(backend: LockBackend, inOrder = true) {
    const asked = <Request, Answer>(ask: (request: Request) => Answer) => {
      return (request: Request): Answer => {
        this.asked += 1;
        return ask(request);
      };
    };
    const held = (give: Release): Release => {
      return async (request) => {
        this.waiting += 1;
        await this.gate?.opened;
        return new Promise((resolve, reject) => give(request).then(resolve, reject));
      };
    };
    this.backend = replacing(backend, (inner) => {
      const { queue, acquireSeveral } = inner;
      return {
        acquire: asked(inner.acquire),
        ...(acquireSeveral && { acquireSeveral: asked(acquireSeveral) }),
        ...(queue && {
          queue: withMembers(queue, { enqueue: asked((request: EnqueueRequest) => queue.enqueue(request)) }),
        }),
        release: held(inner.release),
        traits: { ...inner.traits, writesAtOnce: inOrder },
      };
    });
  }

  open(): void {
    this.gate?.open();
    this.gate = undefined;
  }
}

const stores = { redis: () => redis(server.url), memory } as const;
const kinds = ['redis', 'memory'] as const;
const BACKGROUND = { release: 'background' } as const satisfies LockOptions;

@Injectable()
class Shop {
  @DistributedLock('shop:<0>', BACKGROUND)
  async sell(name: string): Promise<string> {
    return name;
  }

  @Semaphore('permit:<0>', { permits: 1, ...BACKGROUND })
  async count(name: string): Promise<string> {
    return name;
  }
}

async function startShop(backend: LockBackend) {
  const imports = [RedisLockModule.forRoot({ backend })];
  const app = await NestFactory.createApplicationContext(
    { module: class {}, imports, providers: [Shop] },
    { logger: new RecordingLogger(), abortOnError: false },
  );
  return { shop: app.get(Shop), close: () => app.close() };
}

describe.each(kinds)('a release in the background on %s', (kind) => {
  it('lets the call go on when the body has ended: a result, an error, a bare lock', async () => {
    const held = new Held(stores[kind]());
    await using app = await startLockApp({ backend: held.backend });
    const { locks } = app;
    expect(await locks.withLock('one', BACKGROUND, async () => 'done')).toBe('done');
    const fails = locks.withLock('two', BACKGROUND, () => Promise.reject(new Error('of the body')));
    await expect(fails).rejects.toThrow('of the body');
    const bare = await locks.acquire('three', BACKGROUND);
    await bare.release();
    await bare.release();
    {
      await using lock = await locks.acquire('four', BACKGROUND);
      expect(lock.held).toBe(true);
    }
    await locks.acquire('five', BACKGROUND);
    await locks.release('five');
    await locks.withLock(['six', 'seven'], BACKGROUND, async () => {});
    await locks.withLock('eight', { ...BACKGROUND, mode: 'read' }, async () => {});
    const names = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'];
    for (const name of names) expect(await locks.isLocked(name)).toBe(true);
    expect(held.waiting).toBe(names.length);
    held.open();
    for (const name of names) await eventually(async () => !(await locks.isLocked(name)));
  });

  it('lets a decorated method go on', async () => {
    const held = new Held(stores[kind]());
    const { shop, close } = await startShop(held.backend);
    expect(await shop.sell('tea')).toBe('tea');
    expect(held.waiting).toBe(1);
    held.open();
    await close();
  });

  it('is the default of the module where that says so, and not where the call says otherwise', async () => {
    const held = new Held(stores[kind]());
    await using app = await startLockApp({ backend: held.backend, defaults: BACKGROUND });
    await app.locks.withLock('default', async () => {});
    let ended = false;
    const call = app.locks.withLock('confirmed', { release: 'confirmed' }, async () => {}).then(() => (ended = true));
    await eventually(() => held.waiting === 2);
    await turn();
    expect(ended).toBe(false);
    held.open();
    await call;
  });

  it('is waited for by the end of the application', async () => {
    const held = new Held(stores[kind]());
    const app = await startLockApp({ backend: held.backend });
    await app.locks.withLock('closing', BACKGROUND, async () => {});
    let closed = false;
    const close = app.close().then(() => (closed = true));
    await eventually(() => held.waiting === 1);
    await turn();
    expect(closed).toBe(false);
    held.open();
    await close;
    await using other = await startLockApp({ backend: stores[kind]() });
    expect(await other.locks.isLocked('closing')).toBe(false);
  });

  it('rejects where the lock was lost before the body ended, without waiting for an answer', async () => {
    const held = new Held(stores[kind]());
    await using app = await startLockApp({ backend: held.backend });
    const body = async () => {
      await app.locks.forceRelease('robbed');
    };
    await expect(app.locks.withLock('robbed', BACKGROUND, body)).rejects.toBeInstanceOf(LockLostError);
    const short = { ...BACKGROUND, maxHold: 500 };
    const overstays = app.locks.withLock('long', short, async (lock) => eventually(() => !lock.held));
    await expect(overstays).rejects.toMatchObject({ reason: 'maxHold' });
    held.open();
    await turn();
    expect(app.logger.matching(/lost/)).toHaveLength(2);
  });

  it('tells once of a lock that had been taken away, and throws nothing', async () => {
    const release: Release = async () => ({ status: 'taken', resent: false });
    const held = new Held(replacing(stores[kind](), () => ({ release })));
    await using app = await startLockApp({ backend: held.backend });
    using events = new RecordedEvents(['lost', 'released']);
    const { fencingToken } = await app.locks.withLock('taken', BACKGROUND, async (lock) => lock);
    held.open();
    await eventually(() => events.all.length > 0);
    await turn();
    expect(events.all).toMatchObject([{ name: 'lost', event: { reason: 'taken', fencingToken } }]);
    expect(app.logger.lines).toMatchObject([{ level: 'error', text: expect.stringContaining('"taken" lost (taken)') }]);
  });

  it('is repeated until it is answered', async () => {
    let sent = 0;
    const inner = replacing(stores[kind](), (store) => ({
      release: async (request) => {
        sent += 1;
        if (sent < 3) throw new Error('connection lost');
        return store.release(request);
      },
    }));
    const held = new Held(inner);
    held.open();
    await using app = await startLockApp({ backend: held.backend });
    await app.locks.withLock('repeated', BACKGROUND, async () => {});
    await eventually(async () => !(await app.locks.isLocked('repeated')));
    expect(sent).toBe(3);
    expect(app.logger.lines).toEqual([]);
  });
});

const ways: [string, string | string[], LockOptions][] = [
  ['one name', 'next', {}],
  ['order: fifo', 'next', { order: 'fifo' }],
  ['a retry strategy', 'next', { retry: fixedDelay(5) }],
  ['several names', ['next', 'other'], {}],
  ['a reader', 'next', { mode: 'read' }],
];

describe.each([
  ['in order', true],
  ['by several connections', false],
] as const)('the next call of the process, where requests travel %s', (_, inOrder) => {
  let held: Held;
  let app: LockApp;

  beforeEach(async () => {
    held = new Held(redis(server.url), inOrder);
    app = await startLockApp({ backend: held.backend });
  });
  afterEach(async () => {
    held.open();
    await app.close();
  });

  it.each(ways)('is not refused because of the release: %s, wait: 0', async (_name, key, options) => {
    await app.locks.withLock('next', BACKGROUND, async () => {});
    const call = app.locks.acquire(key, { ...options, wait: 0 });
    // What it sends by itself has been answered by now.
    await app.locks.isLocked('next');
    held.open();
    await (await call).release();
  });

  it.each(ways)('enters where it waits: %s', async (_name, key, options) => {
    await app.locks.withLock('next', BACKGROUND, async () => {});
    const before = held.asked;
    const call = app.locks.acquire(key, options);
    await app.locks.isLocked('next');
    // Where requests keep their order, the release is not waited for.
    expect(held.asked > before).toBe(inOrder);
    held.open();
    await (await call).release();
    if (!inOrder) expect(held.asked).toBe(before + 1);
  });

  it('is not refused after a reader, several names, or a call behind another one', async () => {
    await app.locks.withLock(['next', 'other'], BACKGROUND, async () => {});
    await app.locks.withLock('read', { ...BACKGROUND, mode: 'read' }, async () => {});
    const calls = ['next', 'other', 'read'].map((name) => app.locks.tryAcquire(name));
    await app.locks.isLocked('next');
    held.open();
    for (const lock of await Promise.all(calls)) await lock?.release();
    expect(await Promise.all(calls)).not.toContain(null);
  });

  it('enters though its wait has ended meanwhile', async () => {
    await app.locks.withLock('next', BACKGROUND, async () => {});
    const call = app.locks.acquire('next', { wait: 1 });
    await app.locks.isLocked('next');
    await sleep(30);
    held.open();
    await (await call).release();
  });

  it('may be given up meanwhile', async () => {
    await app.locks.withLock('next', BACKGROUND, async () => {});
    const controller = new AbortController();
    const call = app.locks.acquire('next', { signal: controller.signal });
    await app.locks.isLocked('next');
    controller.abort(new Error('no more'));
    await expect(call).rejects.toThrow('no more');
    held.open();
    await eventually(async () => !(await app.locks.isLocked('next')));
  });

  it('is refused where another process has the name', async () => {
    await using other = await startLockApp({ redis: server.url });
    await app.locks.withLock('next', BACKGROUND, async () => {});
    const waiting = other.locks.acquire('next');
    await eventually(async () => ((await app.locks.inspect('next'))?.waiting ?? 0) > 0);
    held.open();
    const lock = await waiting;
    expect(await app.locks.tryAcquire('next')).toBeNull();
    await lock.release();
  });

  it('finds the name taken by minHold, though the holder has ended', async () => {
    await app.locks.withLock('next', { ...BACKGROUND, minHold: '10m' }, async () => {});
    held.open();
    expect(await app.locks.tryAcquire('next')).toBeNull();
    await app.locks.forceRelease('next');
  });
});

describe('a nested hold', () => {
  it('releases as the option of the hold says that ends last', async () => {
    const held = new Held(memory());
    await using app = await startLockApp({ backend: held.backend });
    await app.locks.withLock('nested', BACKGROUND, async () => {
      await app.locks.withLock('nested', { release: 'confirmed' }, async () => {});
      expect(held.waiting).toBe(0);
    });
    expect(held.waiting).toBe(1);
    expect(await app.locks.isLocked('nested')).toBe(true);
    held.open();
    await eventually(async () => !(await app.locks.isLocked('nested')));
  });
});

describe('a permit', () => {
  function heldPermits() {
    const gate = new Gate();
    const inner = memory() as LockBackend & PrimitiveStoreProvider;
    let live = true;
    let waiting = 0;
    const openPrimitiveStores: PrimitiveStoreProvider['openPrimitiveStores'] = (prefix) => {
      const given = inner.openPrimitiveStores(prefix);
      const release: typeof given.semaphores.release = async (request) => {
        waiting += 1;
        await gate.opened;
        const answer = await new Promise<{ live: boolean; resent: boolean }>((resolve, reject) =>
          given.semaphores.release(request).then(resolve, reject),
        );
        return live ? answer : { live, resent: false };
      };
      return withMembers(given, { semaphores: withMembers(given.semaphores, { release }) });
    };
    const backend = withMembers(inner, { openPrimitiveStores });
    return { backend, gate, lose: () => (live = false), waiting: () => waiting };
  }

  it('is given back in the background: withPermit, a decorated method, release()', async () => {
    const { backend, gate, waiting } = heldPermits();
    const { shop, close } = await startShop(backend);
    await using app = await startLockApp({ backend });
    const semaphores = app.app.get(SemaphoreService);
    const options = { permits: 1, ...BACKGROUND };
    expect(await semaphores.withPermit('one', options, async () => 'done')).toBe('done');
    const fails = semaphores.withPermit('two', options, () => Promise.reject(new Error('of the body')));
    await expect(fails).rejects.toThrow('of the body');
    await (await semaphores.acquire('three', options)).release();
    expect(await shop.count('four')).toBe('four');
    expect(waiting()).toBe(4);
    let closed = false;
    const closing = app.close().then(() => (closed = true));
    await turn();
    expect(closed).toBe(false);
    gate.open();
    await closing;
    await close();
  });

  it('rejects where it was lost before, and tells of a loss that the answer shows', async () => {
    const { backend, gate, lose } = heldPermits();
    await using app = await startLockApp({ backend });
    const semaphores = app.app.get(SemaphoreService);
    lose();
    await semaphores.withPermit('gone', { permits: 1, ...BACKGROUND }, async () => {});
    gate.open();
    await eventually(() => app.logger.matching(/Permit of semaphore "gone" lost \(taken\)/).length === 1);
    const late = semaphores.withPermit('late', { permits: 1, ...BACKGROUND }, async (permit) => {
      void app.app.close();
      await eventually(() => !permit.held);
    });
    await expect(late).rejects.toBeInstanceOf(PermitLostError);
    expect(app.logger.matching(/"late"/)).toEqual([]);
  });

  it.each(kinds)('is free for the next call of the process with wait: 0, on %s', async (kind) => {
    await using app = await startLockApp({ backend: stores[kind]() });
    const semaphores = app.app.get(SemaphoreService);
    for (let round = 0; round < 20; round++) {
      const bodies = ['a', 'b', 'c'].map((name) =>
        semaphores.withPermit(name, { permits: 1, ...BACKGROUND }, async () => {}),
      );
      await Promise.all(bodies);
      await using permit = await semaphores.tryAcquire('b', { permits: 1 });
      expect(permit?.held).toBe(true);
    }
  });
});

it.each([['later'], [true], [null]])('refuses %s as "release"', async (release) => {
  await using app = await startLockApp({ backend: memory() });
  const wrong = { release } as unknown as LockOptions;
  const call = app.locks.withLock('a', wrong, async () => {});
  const shown = typeof release === 'string' ? `"${release}"` : String(release);
  const message = `Option "release" is ${shown}; give 'confirmed' or 'background'`;
  await expect(call).rejects.toEqual(new LockConfigError(message));
  const permit = app.app.get(SemaphoreService).acquire('a', { ...wrong, permits: 1 });
  await expect(permit).rejects.toEqual(new PrimitiveConfigError(message));
  expect(() => DistributedLock('a', wrong as never)).toThrow(message);
});
