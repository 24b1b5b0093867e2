import { Module, type INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  BackendRefusal,
  CacheService,
  CountDownLatch,
  IdempotencyService,
  type LockBackend,
  LockService,
  memory,
  RateLimiter,
  RedisLockModule,
  type RedisLockModuleOptions,
  ScheduledJobs,
  SemaphoreService,
} from 'nest-redis-lock';
import type { CacheStore, CacheStoreProvider, ModuleContext } from 'nest-redis-lock/backend';
import type { PrimitiveStoreProvider, PrimitiveStores } from '../../../lib/contracts/primitive-stores.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { startLockApp } from '../../support/lock-app.js';

const UNASKED = new Set(['open', 'start', 'stop', 'ping', 'close', 'listen', 'unlisten', 'track']);

/** The same object, which notes the names of the functions called, those apart that ask the store nothing. */
function noting<T extends object>(inner: T, asked: string[], replaced: Readonly<Record<string, unknown>> = {}): T {
  return new Proxy(inner, {
    get: (target, name) => {
      if (name in replaced) return replaced[String(name)];
      const value = Reflect.get(target, name) as unknown;
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        if (!UNASKED.has(String(name))) asked.push(String(name));
        return value.apply(target, args) as unknown;
      };
    },
  });
}

/** A backend in memory, with all that it keeps, whose check at the start lasts until `check` is open. */
function checkedBackend(check: Gate, refusal?: Error) {
  const asked: string[] = [];
  const inner = memory() as LockBackend & PrimitiveStoreProvider & CacheStoreProvider;
  let starts = 0;
  const start = async () => {
    starts += 1;
    await check.opened;
    if (refusal) throw refusal;
  };
  const openPrimitiveStores = (prefix: string | undefined) => {
    const stores: PrimitiveStores = inner.openPrimitiveStores(prefix);
    const { semaphores, results, latches, rateLimits, runs } = stores;
    return {
      semaphores: noting(semaphores, asked),
      results: noting(results, asked),
      latches: noting(latches, asked),
      rateLimits: noting(rateLimits, asked),
      runs: noting(runs, asked),
      close: () => stores.close(),
    };
  };
  const openCacheStore = (prefix: string | undefined): CacheStore => noting(inner.openCacheStore(prefix), asked);
  const open = (module: ModuleContext) => noting(inner.open(module), asked, { start });
  const backend = noting<LockBackend>(inner, asked, { open, openPrimitiveStores, openCacheStore });
  return { backend, asked, starts: () => starts };
}

const JOB = { atMostFor: '1m', atLeastFor: '1s' } as const;

type App = Pick<INestApplicationContext, 'get'>;

const CALLS: readonly [string, (app: App) => Promise<unknown>][] = [
  ['a lock', (app) => app.get(LockService).withLock('early', async () => 'ran')],
  ['a try', async (app) => (await app.get(LockService).tryAcquire('early'))?.release()],
  ['several locks', (app) => app.get(LockService).withLock(['early', 'late'], async () => 'ran')],
  ['an inspection', (app) => app.get(LockService).inspect('early')],
  ['a permit', (app) => app.get(SemaphoreService).withPermit('early', { permits: 2 }, async () => 'ran')],
  ['the free permits', (app) => app.get(SemaphoreService).available('early')],
  ['an idempotent call', (app) => app.get(IdempotencyService).run('early', { ttl: '1m' }, async () => 'ran')],
  ['a rate limit', (app) => app.get(RateLimiter).consume('early', { limit: 1, per: '1s' })],
  ['a scheduled job', (app) => app.get(ScheduledJobs).run('early', JOB, async () => 'ran')],
  ['a latch', (app) => app.get(CountDownLatch).define('early', { count: 2, ttl: '1m' })],
  ['a cached value', (app) => app.get(CacheService).getOrSet('early', async () => 'loaded')],
  ['a value set', (app) => app.get(CacheService).set('early', 1, { ttl: '1m' })],
  ['an invalidation', (app) => app.get(CacheService).invalidate('early')],
  ['a count', (app) => app.get(CacheService).incr('early', { ttl: '1m' })],
];

describe('the check at the start', () => {
  it.each(CALLS)('ends before the backend is asked for %s', async (_what, call) => {
    const check = new Gate();
    const { backend, asked } = checkedBackend(check);
    await using lockApp = await startLockApp({ backend, commandTimeout: 60_000 });
    const early = call(lockApp.app);
    await turns();
    expect(asked).toEqual([]);
    check.open();
    await early;
    expect(asked).not.toEqual([]);
  });

  const LOCKS_AND_PRIMITIVES = CALLS.slice(0, 10);

  it.each(LOCKS_AND_PRIMITIVES)('refuses also the call for %s that came before its end', async (_what, call) => {
    const check = new Gate();
    const { backend, asked } = checkedBackend(check, new BackendRefusal('It forgets what it grants'));
    await using lockApp = await startLockApp({ backend, commandTimeout: 60_000 });
    const early = call(lockApp.app);
    check.open();
    await expect(early).rejects.toThrow('It forgets what it grants');
    expect(asked.filter((name) => name !== 'release')).toEqual([]);
  });

  it.each<[string, (app: App) => Promise<unknown>]>([
    ['a lock', (app) => app.get(LockService).tryAcquire('early')],
    ['several locks', (app) => app.get(LockService).tryAcquire(['early', 'late'])],
    ['a permit', (app) => app.get(SemaphoreService).acquire('early', { permits: 2, wait: 0 })],
  ])('has what gives back %s go behind the request, whose caller gave up before the end', async (_what, call) => {
    const check = new Gate();
    const { backend, asked } = checkedBackend(check);
    await using lockApp = await startLockApp({ backend, commandTimeout: 200 });
    await expect(call(lockApp.app)).rejects.toThrow();
    check.open();
    await eventually(() => asked.includes('release'));
    const requested = asked.findIndex((name) => name.startsWith('acquire'));
    expect(requested).toBeGreaterThanOrEqual(0);
    expect(asked.indexOf('release')).toBeGreaterThan(requested);
  });

  const THROWING = { defaults: { onRedisError: 'throw' } } as const;

  it('of a cache ends before its store is asked, and refuses for good', async () => {
    const check = new Gate();
    const asked: string[] = [];
    const inner = memory() as LockBackend & CacheStoreProvider;
    const start = async () => {
      await check.opened;
      throw new BackendRefusal('It forgets what it keeps');
    };
    const backend = noting<LockBackend>(inner, [], {
      openCacheStore: (prefix?: string) => noting(inner.openCacheStore(prefix), asked, { start }),
    });
    await using lockApp = await startLockApp({ backend, commandTimeout: 60_000, cache: THROWING });
    const cache = lockApp.app.get(CacheService);
    const early = cache.set('early', 1, { ttl: '1m' });
    await turns();
    expect(asked).toEqual([]);
    check.open();
    for (const set of [early, cache.set('later', 1, { ttl: '1m' })])
      await expect(set).rejects.toThrow('It forgets what it keeps');
    expect(asked).toEqual([]);
    // Locks do not wait for it.
    expect(await lockApp.locks.withLock('x', async () => 'ran')).toBe('ran');
  });

  it.each(CALLS)('begins with the call for %s that a factory makes before the start', async (_what, call) => {
    const check = new Gate();
    const { backend, asked, starts } = checkedBackend(check);
    const starting = startWithFactory({ backend, commandTimeout: 60_000 }, call);
    await eventually(() => starts() > 0);
    await turns();
    expect(asked).toEqual([]);
    check.open();
    const app = await starting;
    expect(asked).not.toEqual([]);
    expect(starts()).toBe(1);
    await app.close();
  });

  it('that fails refuses the start with failFast, though a factory had it begin', async () => {
    const check = new Gate();
    check.open();
    const { backend, asked } = checkedBackend(check, new BackendRefusal('It forgets what it grants'));
    const starting = startWithFactory({ backend, failFast: true }, (app) =>
      app
        .get(LockService)
        .withLock('early', async () => {})
        .catch(() => {}),
    );
    await expect(starting).rejects.toThrow('It forgets what it grants');
    expect(asked).toEqual([]);
  });

  it('lets nobody wait who calls while a module starts', async () => {
    const check = new Gate();
    const { backend, asked } = checkedBackend(check);
    @Module({ imports: [RedisLockModule.forRoot({ backend, commandTimeout: 60_000 })] })
    class Migrations {
      ran = 0;
      constructor(private readonly locks: LockService) {}
      async onModuleInit() {
        setImmediate(check.open);
        await this.locks.withLock('migrations', async () => (this.ran += 1));
      }
    }
    Reflect.defineMetadata('design:paramtypes', [LockService], Migrations);
    const app = await NestFactory.createApplicationContext(Migrations, { logger: false, abortOnError: false });
    expect(app.get(Migrations).ran).toBe(1);
    expect(asked).toContain('acquire');
    await app.close();
  });
});

it('gives back a permit also where the backend refuses by now', async () => {
  const asked: string[] = [];
  const inner = memory() as LockBackend & PrimitiveStoreProvider;
  let refusal: Error | undefined;
  const openPrimitiveStores = (prefix: string | undefined) => {
    const stores = inner.openPrimitiveStores(prefix);
    const use = async (name: string) => {
      if (refusal) throw refusal;
      return stores.semaphores.use(name);
    };
    return Object.assign(Object.create(stores) as PrimitiveStores, {
      semaphores: noting(stores.semaphores, asked, { use }),
    });
  };
  const backend = noting<LockBackend>(inner, [], { openPrimitiveStores });
  await using app = await startLockApp({ backend });
  const semaphores = app.app.get(SemaphoreService);
  const permit = await semaphores.acquire('seats', { permits: 1 });
  refusal = new BackendRefusal('It forgets what it grants');
  await expect(semaphores.available('seats')).rejects.toThrow('It forgets what it grants');
  await permit.release();
  expect(asked.filter((name) => name === 'release')).toHaveLength(1);
  await expect(semaphores.acquire('seats', { permits: 1 })).rejects.toThrow('It forgets what it grants');
  expect(asked.filter((name) => name === 'acquire')).toHaveLength(1);
});

/** Enough turns of the event loop for whatever needs no answer. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
}

/** An application in which a provider is made with the answer to `call`, before any module is started. */
function startWithFactory(
  options: RedisLockModuleOptions,
  call: (app: App) => Promise<unknown>,
): Promise<INestApplicationContext> {
  const SERVICES = [
    LockService,
    SemaphoreService,
    IdempotencyService,
    RateLimiter,
    ScheduledJobs,
    CountDownLatch,
    CacheService,
  ];
  class Root {}
  const module = {
    module: Root,
    imports: [RedisLockModule.forRoot(options)],
    providers: [
      {
        provide: 'made with a call',
        inject: SERVICES,
        useFactory: async (...services: unknown[]) => {
          const get = (token: unknown) => services[SERVICES.indexOf(token as never)];
          return [await call({ get } as App)];
        },
      },
    ],
  };
  return NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
}
