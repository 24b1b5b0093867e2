import { Redis } from 'ioredis';
import { memory, redis, type LockOptions } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { LockBackends } from '../../lib/lock/line/lock-backends.js';
import { eventually } from '../support/eventually.js';
import { FaultyBackend, type Fault } from '../support/faulty-backend.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';

/**
 * Fails each call to the backend once, in every way of taking a lock. Whatever the caller gets, afterwards no name is
 * owned, no ticket waits, and nothing is renewed.
 */

/** Longer than a test: a name that is free before was released. */
const TTL = 30_000;

interface World {
  readonly faulty: FaultyBackend;
  readonly app: LockApp;
  /** Another process, where there is one. */
  readonly other: LockApp;
}

interface Scenario {
  readonly title: string;
  /** Held by another process, and released while the call waits. */
  readonly contended?: readonly string[];
  run(world: World): Promise<unknown>;
}

const NAMES = ['a', 'b', 'c'];
const LONG: LockOptions = { ttl: TTL, wait: 1_500 };

const hold = (key: string | string[], options: LockOptions = {}) => ({
  run: ({ app }: World) => app.locks.withLock(key, { ...LONG, ...options }, async () => {}),
});
const nested = (outer: string | string[], inner: string | string[]) => ({
  run: ({ app: { locks } }: World) =>
    locks.withLock(outer, LONG, () => locks.withLock(inner, LONG, async () => {}).catch(() => {})),
});
const severalCallers = (key: string | string[], options: LockOptions = {}) => ({
  run: ({ app }: World) =>
    Promise.allSettled(
      Array.from({ length: 3 }, () => app.locks.withLock(key, { ...LONG, ...options }, async () => {})),
    ),
});

const scenarios: Scenario[] = [
  { title: 'one name', ...hold('a') },
  { title: 'one name, one try', ...hold('a', { wait: 0 }) },
  { title: 'one name, contended', contended: ['a'], ...hold('a') },
  { title: 'one name in order of arrival, contended', contended: ['a'], ...hold('a', { order: 'fifo' }) },
  { title: 'one name by a retry strategy, contended', contended: ['a'], ...hold('a', { retry: everyFewMs }) },
  { title: 'one name without renewal, contended', contended: ['a'], ...hold('a', { renew: false }) },
  { title: 'several callers of one name, contended', contended: ['a'], ...severalCallers('a') },
  { title: 'several names', ...hold(NAMES) },
  { title: 'several names, the first contended', contended: ['a'], ...hold(NAMES) },
  { title: 'several names, the last contended', contended: ['c'], ...hold(NAMES) },
  { title: 'several names, all contended', contended: NAMES, ...hold(NAMES) },
  { title: 'several callers of several names, contended', contended: ['b'], ...severalCallers(NAMES) },
  { title: 'a name inside of itself', ...nested('a', 'a') },
  { title: 'further names inside of one', ...nested('a', NAMES) },
  { title: 'further names inside of one, contended', contended: ['b'], ...nested('a', NAMES) },
  { title: 'one name inside of several', ...nested(['a', 'b'], 'c') },
];

function everyFewMs() {
  return { next: () => ({ done: false, value: 10 }) };
}

/** More calls than any scenario makes before its end. */
const MOST_CALLS = 40;

async function tryEachFault(world: World, { contended = [], run }: Scenario, fault: Fault): Promise<void> {
  const { app, other, faulty } = world;
  for (let failing = 0; failing < MOST_CALLS; failing++) {
    const holds = await Promise.all(contended.map((name) => other.locks.acquire(name, { ttl: TTL })));
    faulty.arm(failing, fault);
    const outcome = run(world).catch(() => {});
    if (holds.length > 0) {
      await eventually(() => faulty.calls.length > 0);
      await Promise.all(holds.map((lock) => lock.release()));
    }
    await outcome;
    const { sprung } = faulty;
    const what = `call ${failing} (${faulty.calls[failing]}) ${fault}`;
    for (const name of NAMES) {
      const free = await eventually(async () => (await other.locks.inspect(name)) === null).catch(() => false);
      if (!free) throw new Error(`"${name}" stays taken after ${what}`);
    }
    expect(watched(app)).toBe(0);
    if (!sprung) return;
  }
}

/** How many grants the watchdog renews. */
function watched(app: LockApp): number {
  return app.app.get(LockBackends).main.watchdog.size;
}

describe.each<Fault>(['lost', 'refused'])('%s', (fault) => {
  describe('on Redis', () => {
    let server: RedisServer;
    let plain: Redis;
    let client: Redis;
    let world: World;

    beforeAll(async () => {
      server = await startRedisServer();
      plain = new Redis(server.url);
      client = new Redis(server.url);
    });
    beforeEach(async () => {
      const faulty = new FaultyBackend(redis(client));
      world = {
        faulty,
        app: await startLockApp({ backend: faulty.backend }),
        other: await startLockApp({ redis: server.url }),
      };
    });
    afterEach(async () => {
      await world.app.close();
      await world.other.close();
      expect(await plain.keys('lock:*[}]')).toEqual([]);
      expect(await plain.keys('lock:*:queue')).toEqual([]);
    });
    afterAll(async () => {
      client.disconnect();
      plain.disconnect();
      await server.stop();
    });

    it.each(scenarios.map((scenario) => [scenario.title, scenario] as const))(
      '%s',
      (_, scenario) => tryEachFault(world, scenario, fault),
      60_000,
    );
  });

  describe('in memory', () => {
    let world: World;

    beforeEach(async () => {
      const store = memory();
      const faulty = new FaultyBackend(store);
      const app = await startLockApp({ backend: faulty.backend });
      world = { faulty, app, other: await startLockApp({ backend: store }) };
    });
    afterEach(async () => {
      await world.app.close();
      await world.other.close();
    });

    it.each(
      scenarios.filter(({ title }) => !title.includes('order')).map((scenario) => [scenario.title, scenario] as const),
    )('%s', (_, scenario) => tryEachFault(world, scenario, fault), 60_000);
  });
});
