import type { Lock, LockBackend, Permit } from 'nest-redis-lock';
import type { LockQueue } from 'nest-redis-lock/backend';
import { memory } from 'nest-redis-lock/memory';
import type { PrimitiveStoreProvider } from '../../../lib/contracts/primitive-stores.js';
import { LeaderElection } from '../../../lib/primitives/leader/leader-election.js';
import { PrimitiveRuntime } from '../../../lib/primitives/runtime.js';
import { SemaphoreService } from '../../../lib/primitives/semaphore/semaphore.service.js';
import { DrivenClock } from '../../support/driven-clock.js';
import { type LockServices, startLockServices } from '../../support/lock-services.js';
import { replacing } from '../../support/open-backend.js';

const SECOND = 1_000;
/** Renewed every second. */
const ttl = 3 * SECOND;

describe('what recurs in one process', () => {
  const clock = new DrivenClock();
  /** When something was sent, by what it was. */
  let sent: { renewals: number[]; permits: number[]; heartbeats: number[] };
  /** In which turns of the event loop. */
  let turns: Set<object>;
  let turn: object | undefined;
  let names: string[];
  /** What nobody refers to any more is not renewed. */
  let held: (Lock | Permit)[];
  let services: LockServices;
  let semaphores: SemaphoreService;

  beforeEach(async () => {
    clock.start();
    sent = { renewals: [], permits: [], heartbeats: [] };
    names = [];
    turns = new Set();
    held = [];
    services = await startLockServices({ backend: recordingBackend() });
    semaphores = new SemaphoreService(new PrimitiveRuntime(services.backends));
  });
  afterEach(async () => {
    await clock.settle(Promise.allSettled(held.map((each) => each.release())));
    await clock.settle(services.close());
    clock.stop();
  });

  it('shares a turn of the event loop: renewals of 100 locks, of 20 permits and of a leadership', async () => {
    const { locks, backends } = services;
    const leaders = new LeaderElection(locks, backends);
    for (let number = 0; number < 100; number++) {
      held.push(await locks.acquire(`order-${number}`, { ttl }));
      await clock.pass(7);
    }
    for (let number = 0; number < 20; number++) {
      held.push(await semaphores.acquire(`report-${number % 4}`, { permits: 5, ttl }));
      await clock.pass(7);
    }
    await leaders.join('restock', { lease: ttl }).answered;
    await clock.pass(2 * SECOND);
    forget();
    await clock.pass(5 * SECOND);
    expect(turns.size).toBe(5);
    expect(sent.permits).toHaveLength(5 * 20);
    expect(names).toHaveLength(5 * 101);
    await leaders.candidacy('restock')?.leave();
  });

  it('shares it with the heartbeats of those that wait', async () => {
    const { locks } = services;
    held.push(await locks.acquire('order', { ttl }));
    held.push(await semaphores.acquire('report', { permits: 1, ttl }));
    const waits: Promise<unknown>[] = [semaphores.acquire('report', { permits: 1, wait: 60 * SECOND }).catch(() => {})];
    for (let number = 0; number < 50; number++) {
      waits.push(locks.acquire(`taken-${number}`, { ttl, wait: 60 * SECOND }).catch(() => {}));
      await clock.pass(7);
    }
    await clock.pass(14 * SECOND);
    forget();
    await clock.pass(5 * SECOND);
    // Two heartbeats a second, and with every other one the renewal.
    expect(sent.heartbeats).toHaveLength(10 * 50);
    expect(turns.size).toBe(10);
    void services.close();
    await clock.settle(Promise.all(waits));
  });

  it('shares it after two of them, whenever each began', async () => {
    const { locks } = services;
    for (const name of ['one', 'another', 'a third']) {
      held.push(await locks.acquire(name, { ttl }), await semaphores.acquire(name, { permits: 1, ttl }));
      await clock.pass(300);
    }
    await clock.pass(3 * SECOND);
    for (const times of [sent.renewals, sent.permits]) {
      expect(times).toEqual([1_000, 1_000, 1_600, 1_600, 1_600, 2_100, 2_100, 2_100, 3_000, 3_000, 3_000]);
    }
    expect(turns.size).toBe(4);
  });

  it('renews none twice as often because of others', async () => {
    const { locks } = services;
    held.push(await locks.acquire('short', { ttl }));
    held.push(await semaphores.acquire('short', { permits: 1, ttl }));
    await clock.pass(300);
    held.push(await locks.acquire('long', { ttl: 8 * ttl }));
    held.push(await semaphores.acquire('long', { permits: 1, ttl: 8 * ttl }));
    await clock.pass(20 * SECOND);
    forget();
    await clock.pass(40 * SECOND);
    expect(names.filter((name) => name === 'short')).toHaveLength(40);
    expect(names.filter((name) => name === 'long')).toHaveLength(5);
    expect(sent.permits).toHaveLength(40 + 5);
  });

  it('is renewed after a third of its lease at the latest', async () => {
    const { locks } = services;
    const acquired: number[] = [];
    for (let number = 0; number < 30; number++) {
      acquired.push(performance.now());
      held.push(await locks.acquire(String(number), { ttl }));
      await clock.pass(97);
    }
    await clock.pass(5 * SECOND);
    for (const [number, at] of acquired.entries()) {
      const times = [at, ...sent.renewals.filter((_, index) => names[index] === String(number))];
      const gaps = times.slice(1).map((time, index) => time - (times[index] as number));
      expect(Math.max(...gaps)).toBeLessThanOrEqual(SECOND + 5);
      expect(Math.min(...gaps)).toBeGreaterThanOrEqual(SECOND / 2 - 5);
    }
  });

  it('is looked at every 10 s at the latest, however long its lease', async () => {
    held.push(await services.locks.acquire('long', { ttl: '1h' }));
    held.push(await semaphores.acquire('long', { permits: 1, ttl: '1h' }));
    await clock.pass(60 * SECOND);
    expect(names.filter((name) => name === 'long')).toHaveLength(6);
    expect(sent.permits).toHaveLength(6);
  });

  function forget(): void {
    for (const times of Object.values(sent)) times.length = 0;
    names = [];
    turns.clear();
  }

  function note(times: number[]): void {
    times.push(performance.now());
    if (!turn) queueMicrotask(() => (turn = undefined));
    turns.add((turn ??= {}));
  }

  /** Keeps locks and permits in memory. Names that begin with "taken" are busy, and never become free. */
  function recordingBackend(): LockBackend {
    const memoryOnly = memory() as LockBackend & PrimitiveStoreProvider;
    const inner = memoryOnly.openPrimitiveStores(undefined);
    const renewPermit: typeof inner.semaphores.renew = (request) => {
      note(sent.permits);
      return inner.semaphores.renew(request);
    };
    const busy = { status: 'busy', owner: 'another:1', remaining: 60 * SECOND, first: true } as const;
    return replacing(memoryOnly, (store) => {
      const queue: LockQueue = {
        listen: async () => {},
        enqueue: async (request) => (request.name.startsWith('taken') ? busy : store.acquire(request)),
        beat: async () => {
          note(sent.heartbeats);
          return busy;
        },
        requeue: async () => busy,
      };
      return {
        queue,
        renew: (requests) => {
          for (const request of requests) {
            note(sent.renewals);
            names.push(request.name);
          }
          return store.renew(requests);
        },
        openPrimitiveStores: () => ({ ...inner, semaphores: { ...inner.semaphores, renew: renewPermit } }),
      };
    });
  }
});
