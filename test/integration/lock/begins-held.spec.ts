import { setImmediate as turn } from 'node:timers/promises';
import { Inject, Injectable } from '@nestjs/common';
import { createClient } from '@redis/client';
import { NestFactory } from '@nestjs/core';
import {
  DistributedLock,
  type Lock,
  LockService,
  memory,
  RedisLockModule,
  ScheduledJobs,
  SemaphoreService,
} from 'nest-redis-lock';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

/** Milliseconds, of the leases of these tests: longer than a busy machine takes from a look at one to its body. */
const ttl = 400;

/** Keeps the event loop for longer than a lease. */
function block(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1.25 * ttl);
}

const wait = '60s' as const;

@Injectable()
class Shop {
  readonly began: boolean[] = [];
  readonly inner: Promise<void>[] = [];

  constructor(@Inject(LockService) readonly locks: LockService) {}

  @DistributedLock('order:<0>')
  async ship(id: string): Promise<void> {
    this.inner.push(this.audit(id));
  }

  @DistributedLock('order:<0>')
  async audit(_id: string): Promise<void> {
    this.began.push(this.locks.current()?.held === true);
    await turn();
  }
}

describe.each(['memory', 'redis'])('a body begins inside its lock, on %s', (store) => {
  let redis: RedisServer | undefined;
  let one: LockApp;
  let other: LockApp;
  let names = 0;
  const newName = () => `name-${(names += 1)}`;

  beforeAll(async () => {
    if (store === 'redis') redis = await startRedisServer();
    const options = redis ? { redis: redis.url } : { backend: memory() };
    [one, other] = [await startLockApp(options), await startLockApp(options)];
    // Connections, channels and scripts are there from now on, so that the grants arrive together.
    await one.locks.withLock(newName(), async () => {});
  });
  afterAll(async () => {
    await Promise.all([one.close(), other.close()]);
    await redis?.stop();
  });

  describe('where others that were granted theirs with it keep the event loop for longer than the lease:', () => {
    /** Whether each of three bodies began inside what it holds. */
    async function three(run: (name: string, body: (held: boolean) => void) => Promise<unknown>): Promise<boolean[]> {
      const began: boolean[] = [];
      const body = (held: boolean) => {
        began.push(held);
        block();
      };
      await Promise.allSettled([newName(), newName(), newName()].map((name) => run(name, body)));
      return began;
    }
    const allHeld = [true, true, true];

    it('a lock', async () => {
      const run = (name: string, body: (held: boolean) => void) =>
        one.locks.withLock(name, { ttl, wait }, async (lock) => body(lock.held));
      expect(await three(run)).toEqual(allHeld);
    });

    it('a lock without renewal, several names, and one that is acquired', async () => {
      const fixed = { ttl, wait, renew: false };
      const withLock = (name: string, body: (held: boolean) => void) =>
        one.locks.withLock([name, `${name}-b`], fixed, async (lock) => body(lock.held));
      expect(await three(withLock)).toEqual(allHeld);
      const acquire = async (name: string, body: (held: boolean) => void) => {
        const lock = await one.locks.acquire(name, fixed);
        body(lock.held);
        await lock.release();
      };
      expect((await three(acquire))[0]).toBe(true);
    });

    it('a permit', async () => {
      const semaphores = one.app.get(SemaphoreService);
      const run = (name: string, body: (held: boolean) => void) =>
        semaphores.withPermit(name, { permits: 1, ttl, wait }, async (permit) => body(permit.held));
      expect(await three(run)).toEqual(allHeld);
    });

    it('permits of one semaphore', async () => {
      const semaphores = one.app.get(SemaphoreService);
      const name = newName();
      const run = (_: string, body: (held: boolean) => void) =>
        semaphores.withPermit(name, { permits: 3, ttl, wait }, async (permit) => body(permit.held));
      expect(await three(run)).toEqual(allHeld);
    });

    it('a scheduled job, which runs late or not at all', async () => {
      const jobs = one.app.get(ScheduledJobs);
      const run = (name: string, body: (held: boolean) => void) =>
        jobs.run(name, { atMostFor: ttl, atLeastFor: 0 }, async (lock) => body(lock.held));
      const began = await three(run);
      expect(began).toEqual(allHeld.slice(0, began.length));
      expect(began.length).toBeGreaterThan(0);
    });
  });

  describe('where the hold around it ends before it begins:', () => {
    type Inside = (
      start: () => Promise<void>,
      inside: (body: () => Promise<void>) => Promise<void>,
    ) => Promise<Promise<void>[]>;
    const shapes: Readonly<Record<string, Inside>> = {
      'a call that nobody awaits': async (start) => [start()],
      'a call that nobody awaits, a moment later': async (start) => {
        const inner = [start()];
        await Promise.resolve();
        return inner;
      },
      'the rest of a failed Promise.all': async (start, within) => {
        const failing = within(() => Promise.reject(new Error('a sibling failed')));
        const inner = start();
        await Promise.all([failing, inner]).catch(() => {});
        return [inner];
      },
      'the loser of a Promise.race': async (start, within) => {
        const winner = within(() => turn());
        const inner = start();
        await Promise.race([winner, inner]);
        return [inner];
      },
    };
    const modes = ['write', 'read'] as const;
    const cases = Object.entries(shapes).flatMap(([shape, inside]) => modes.map((mode) => ({ shape, inside, mode })));

    it.each(cases)('$shape, to $mode', async ({ inside, mode }) => {
      const name = newName();
      let holders = 0;
      const began: boolean[] = [];
      const beside: number[] = [];
      const body = async (lock: Lock) => {
        began.push(lock.held);
        holders += 1;
        for (let turns = 0; turns < 20; turns += 1) await turn();
        if (lock.held) beside.push(holders);
        holders -= 1;
      };
      const start = () => one.locks.withLock(name, { mode, wait }, body);
      let inner: Promise<void>[] = [];
      const outer = one.locks.withLock(name, { mode, wait }, async () => {
        inner = await inside(start, (within) => one.locks.withLock(name, { mode }, within));
      });
      const elsewhere = other.locks.withLock(name, { wait }, body);
      await Promise.all([outer, elsewhere]);
      await Promise.all(inner);
      expect(began).toEqual([true, true]);
      expect(beside).toEqual([1, 1]);
    });

    it('one of several names', async () => {
      const [first, second] = [newName(), newName()];
      const began: boolean[] = [];
      let inner: Promise<void> | undefined;
      await one.locks.withLock([first, second], async () => {
        inner = one.locks.withLock([second, newName()], { minHold: 1 }, async (lock) => void began.push(lock.held));
      });
      await inner;
      expect(began).toEqual([true]);
    });

    it('a decorated method that nobody awaits', async () => {
      const imports = [RedisLockModule.forRoot(redis ? { redis: redis.url } : { backend: memory() })];
      const module = { module: class Root {}, imports, providers: [Shop] };
      const app = await NestFactory.createApplicationContext(module, { logger: false });
      const shop = app.get(Shop);
      await shop.ship('1');
      await Promise.all(shop.inner);
      await app.close();
      expect(shop.began).toEqual([true]);
    });
  });
});

// Otherwise a body that blocks the event loop from its first line would hold back the renewal of its short lease.
it('on a client of node-redis, which writes in the next turn, the renewal is answered before a holder begins', async () => {
  await using server = await startRedisServer();
  const client = createClient({ url: server.url });
  client.on('error', () => {});
  await client.connect();
  await using app = await startLockApp({ redis: client, cache: false });
  const first = await app.locks.acquire('one', { ttl: 2_000, renew: false });
  const second = app.locks.withLock('one', { ttl: 30_000, wait }, async (lock) => lock.remaining());
  await first.release();
  expect(await second).toBeGreaterThan(20_000);
  const semaphores = app.app.get(SemaphoreService);
  const permit = await semaphores.acquire('few', { permits: 1 });
  const waiting = semaphores.withPermit('few', { permits: 1, ttl: 30_000, wait }, async (held) => held.remaining());
  await permit.release();
  expect(await waiting).toBeGreaterThan(20_000);
  await app.close();
  client.destroy();
});
