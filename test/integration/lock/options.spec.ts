import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import {
  DistributedLock,
  fixedDelay,
  limitedRetries,
  type LockBackend,
  LockConfigError,
  LockKeyError,
  type LockOptions,
  type LockService,
  memory,
  redis,
  RedisLockModule,
  type RedisLockModuleOptions,
  type RetryStrategy,
} from 'nest-redis-lock';
import { testServices } from 'nest-redis-lock/testing';
import { eventually } from '../../support/eventually.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';
import { replacing, withMembers } from '../../support/open-backend.js';

describe('what a caller gives', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  describe.each(['redis', 'memory'] as const)('what a caller gives to a lock on %s', (kind) => {
    let app: LockApp;
    let locks: LockService;

    beforeAll(async () => {
      app = await startLockApp(kind === 'redis' ? { redis: server.url } : { backend: memory() });
      locks = app.locks;
    });
    afterAll(() => app.close());

    const strategy = (result: unknown) => (() => ({ next: () => result })) as unknown as RetryStrategy;

    it.each<[string, RetryStrategy]>([
      ['NaN', strategy({ done: false, value: Number.NaN })],
      ['-1', strategy({ done: false, value: -1 })],
      ['"50"', strategy({ done: false, value: '50' })],
      ['undefined', strategy({ done: false, value: undefined })],
      ['7', strategy(7)],
      ['undefined', strategy(undefined)],
      ['10', (() => 10) as unknown as RetryStrategy],
    ])('is refused as a delay between tries: %s', async (shown, retry) => {
      const held = await locks.acquire('delayed');
      const error: unknown = await locks.acquire('delayed', { retry, wait: 20_000 }).catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(LockConfigError);
      expect((error as Error).message).toContain(`"retry" is ${shown}; give`);
      await held.release();
      expect(await locks.isLocked('delayed')).toBe(false);
    });

    it('may be a generator of delays, of which 0 and Infinity are two', async () => {
      const held = await locks.acquire('generated', { ttl: 200, renew: false });
      const lock = await locks.acquire('generated', {
        retry: function* () {
          yield 0;
          for (;;) yield Infinity;
        },
      });
      expect(held.held).toBe(false);
      await lock.release();
    });

    it.each([['one'], ['one', 'two']])('is not looked at again after the call: a list of names', async (...names) => {
      const keys = [...names];
      const lock = await locks.acquire(keys, { retry: fixedDelay(10) });
      keys[0] = 'other';
      expect(lock.keys).toEqual(names.toSorted());
      await lock.release();
      for (const name of names) expect(await locks.isLocked(name)).toBe(false);
    });

    it('may be options of a class, with getters, or undefined, and is refused alike by each call', async () => {
      class Options {
        get ttl() {
          return 700;
        }
      }
      for (const lock of [await locks.acquire('o', new Options()), await locks.acquire('p', undefined)])
        await lock.release();
      const tried = await locks.tryAcquire('o', new Options());
      expect(tried?.remaining()).toBeLessThanOrEqual(700);
      await tried?.release();
      await expect(locks.withLock('o', undefined, async () => 'ran')).resolves.toBe('ran');
      for (const refused of [
        null,
        5,
        'x',
        () => {},
        { ttl: null },
        { wait: null },
        { order: null },
        { reentrant: null },
      ]) {
        const given = refused as unknown as LockOptions;
        for (const call of [
          () => locks.acquire('o', given),
          () => locks.tryAcquire('o', given),
          () => locks.withLock('o', given, async () => 'ran'),
        ]) {
          await expect(call()).rejects.toThrow(LockConfigError);
        }
      }
      expect(await locks.isLocked('o')).toBe(false);
    });

    it('must have a function to run, without which no lock is taken', async () => {
      const withLock = locks.withLock.bind(locks) as unknown as (...args: unknown[]) => Promise<unknown>;
      for (const args of [['q'], ['q', { ttl: 1_000 }], ['q', {}, 'body']]) {
        await expect(withLock(...args)).rejects.toThrow(
          /Option "body" is .*; give the function that runs inside the lock/,
        );
      }
    });

    it('may be a signal that was aborted before, which refuses also what would re-enter', async () => {
      const signal = AbortSignal.abort(new Error('gave up'));
      await locks.withLock('r', async () => {
        await expect(locks.withLock('r', { signal }, async () => 'ran')).rejects.toThrow('gave up');
        await expect(locks.tryAcquire(['r', 's'], { signal })).rejects.toThrow('gave up');
      });
      expect([await locks.isLocked('r'), await locks.isLocked('s')]).toEqual([false, false]);
    });

    it('may have a thousand names, and no more', async () => {
      const names = Array.from({ length: 1_001 }, (_, index) => `name:${index}`);
      const error: unknown = await locks.acquire(names).catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(LockKeyError);
      expect((error as Error).message).toMatch(/1001 names; give at most 1000/);
      const lock = await locks.acquire([...names.slice(1), 'name:1'], { wait: 20_000 });
      expect(lock.keys).toHaveLength(1_000);
      await lock.release();
    });

    it('may be one signal for many waits, which Node.js does not take for a leak', async () => {
      const warnings: Error[] = [];
      const note = (warning: Error) => warnings.push(warning);
      process.on('warning', note);
      const held = await locks.acquire('signalled');
      const controller = new AbortController();
      const { signal } = controller;
      const waits = Array.from({ length: 50 }, () => locks.acquire('signalled', { signal, wait: Infinity }));
      const outcomes = Promise.allSettled(waits);
      await eventually(async () => (await locks.inspect('signalled'))?.waiting === 50);
      controller.abort(new Error('enough'));
      expect((await outcomes).map((outcome) => outcome.status === 'rejected' && outcome.reason)).toEqual(
        waits.map(() => new Error('enough')),
      );
      await held.release();
      // Warnings are emitted in a later tick.
      await new Promise((resolve) => setImmediate(resolve));
      process.off('warning', note);
      expect(warnings).toEqual([]);
    });
  });
});

describe('commandTimeout of a call', () => {
  let server: RedisServer;

  beforeAll(async () => (server = await startRedisServer()));
  afterAll(() => server.stop());

  /** A backend that never answers who asks for a lock. */
  function silent(backend: LockBackend): LockBackend {
    const never = () => new Promise<never>(() => {});
    return replacing(backend, ({ queue }) => ({
      ...(queue && { queue: withMembers(queue, { enqueue: never }) }),
      acquire: never,
      acquireSeveral: never,
    }));
  }
  const silentRedis = () => silent(redis(server.url));
  const silentMemory = () => silent(memory());

  const SHORT = 30;
  /** The time limit of the module's options, longer than any test here waits. */
  const LONG = '1h';

  const paths: [string, LockOptions, () => LockBackend][] = [
    ['in the queue of the backend', {}, silentRedis],
    ['in strict order', { order: 'fifo' }, silentRedis],
    ['with a retry strategy', { retry: limitedRetries(2, fixedDelay(1)) }, silentRedis],
    ['in memory', {}, silentMemory],
  ];

  it.each(paths)(
    'ends an unanswered try, whatever the commandTimeout of the module: %s',
    async (_, options, backend) => {
      await using instance = await startLockApp({ backend: backend(), commandTimeout: LONG });
      const { locks } = instance;
      const given = { ...options, commandTimeout: SHORT };
      const failure = { code: 'LOCK_BACKEND', message: expect.stringMatching(/no answer within \d{1,2} ms/) };
      await expect(locks.tryAcquire('n', given)).rejects.toMatchObject(failure);
      await expect(locks.acquire('n', { ...given, wait: 50 })).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
      await expect(locks.withLock(['a', 'b'], { ...given, wait: 50 }, async () => 1)).rejects.toMatchObject({
        code: 'LOCK_BACKEND',
      });
    },
  );

  it('is taken from the defaults, as a duration, and by decorators', async () => {
    @Injectable()
    class Jobs {
      @DistributedLock('job', { wait: 0, commandTimeout: '30ms' })
      async run(): Promise<void> {}
    }
    const options = { backend: silentMemory(), commandTimeout: LONG } as const;
    const module = { module: Jobs, imports: [RedisLockModule.forRoot(options)], providers: [Jobs] };
    const decorated = await NestFactory.createApplicationContext(module, { logger: false });
    await expect(decorated.get(Jobs).run()).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    await decorated.close();
    await using defaulted = await startLockApp({
      ...options,
      backend: silentRedis(),
      defaults: { commandTimeout: SHORT },
    });
    await expect(defaulted.locks.tryAcquire('n')).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  });

  it.each([0, -1, NaN, 'soon', Infinity])('is refused if it is invalid: %p', async (commandTimeout) => {
    await using instance = await startLockApp({ backend: memory() });
    const refused = instance.locks.acquire('n', { commandTimeout: commandTimeout as number });
    await expect(refused).rejects.toBeInstanceOf(LockConfigError);
    await expect(refused).rejects.toThrow(/commandTimeout/);
  });
});

describe('fenceTtl', () => {
  let server: RedisServer;
  let plain: Redis;

  beforeAll(async () => {
    server = await startRedisServer();
    plain = new Redis(server.url);
  });
  afterAll(async () => {
    plain.disconnect();
    await server.stop();
  });

  const fence = (name: string) => plain.pttl(`lock:{${name}}:fence`);

  it.each<[string, () => RedisLockModuleOptions, number]>([
    ['by default', () => ({ redis: server.url }), 600_000],
    ['as the module says', () => ({ redis: server.url, fenceTtl: '90s' }), 90_000],
    ['as an option of the backend', () => ({ backend: redis(server.url, { fenceTtl: 5_000 }) }), 5_000],
  ])('the counter of tokens stays %s, by every way to a grant', async (how, options, ttl) => {
    await using app = await startLockApp(options());
    await using other = await startLockApp(options());
    const [free, several, handed] = [`free ${how}`, `several ${how}`, `handed ${how}`];
    await (await app.locks.acquire(free)).release();
    await (await app.locks.acquire([several, `${several} 2`])).release();
    const holder = await app.locks.acquire(handed);
    const waiting = other.locks.acquire(handed);
    await eventually(async () => (await plain.llen(`lock:{${handed}}:queue`)) === 1);
    await plain.persist(`lock:{${handed}}:fence`);
    await holder.release();
    await (await waiting).release();
    for (const name of [free, several, handed]) {
      expect(await fence(name)).toBeGreaterThan(ttl - 5_000);
      expect(await fence(name)).toBeLessThanOrEqual(ttl);
    }
  });

  it('tokens rise also after it is gone', async () => {
    await using app = await startLockApp({ redis: server.url, fenceTtl: '1s' });
    const tokens: number[] = [];
    for (let i = 0; i < 2; i++) {
      await app.locks.withLock('rising', async ({ fencingToken }) => tokens.push(fencingToken));
      await eventually(async () => (await plain.exists('lock:{rising}:fence')) === 0);
    }
    expect(tokens[1]).toBeGreaterThan(tokens[0] as number);
  });

  it.each([10, '10ms', 0, -1, NaN, '1 hour'])('refuses %j', async (fenceTtl) => {
    const options = { redis: 'redis://127.0.0.1', fenceTtl } as RedisLockModuleOptions;
    await expect(startLockApp(options)).rejects.toThrow(LockConfigError);
    await expect(startLockApp(options)).rejects.toThrow(/fenceTtl/);
  });

  it('belongs to the backend if one is given', async () => {
    await expect(startLockApp({ backend: memory(), fenceTtl: '1m' })).rejects.toThrow(
      /redis\(connection, \{ fenceTtl \}\)/,
    );
  });
});

describe('methods whose only option is the backend', () => {
  it('refuse any other option, by its name and that of the method', async () => {
    const services = testServices();
    const { locks, leaders, jobs } = services;
    const odd = { ttl: '1s' } as object;
    await expect(locks.inspect('odd', odd)).rejects.toThrow('Unknown option of inspect() "ttl"; give any of backend');
    await expect(locks.isLocked('odd', odd)).rejects.toThrow('Unknown option of isLocked() "ttl"');
    await expect(locks.forceRelease('odd', odd)).rejects.toThrow('Unknown option of forceRelease() "ttl"');
    await expect(leaders.leader('odd', odd)).rejects.toThrow('Unknown option of leader() "ttl"');
    await expect(jobs.lastRun('odd', odd)).rejects.toThrow('Unknown option of lastRun() "ttl"');
    for (const nothing of [null, 7, []] as unknown as object[]) {
      await expect(locks.inspect('odd', nothing)).rejects.toThrow(/Option "options" is .*options of inspect\(\)/);
    }
    await expect(locks.inspect('odd', { backend: 7 } as object)).rejects.toThrow('Option "backend" is 7');
    expect(await locks.inspect('odd', {})).toBeNull();
    await services.close();
  });
});
