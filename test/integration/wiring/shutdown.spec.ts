import { setImmediate as turn } from 'node:timers/promises';
import { type BeforeApplicationShutdown, Inject, Injectable, Module, type OnApplicationShutdown } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  type Candidacy,
  IdempotencyService,
  LeaderElection,
  type LockBackend,
  LockService,
  memory,
  RedisLockModule,
  ScheduledJobs,
  SemaphoreService,
} from 'nest-redis-lock';
import type { LockStore, ModuleContext } from 'nest-redis-lock/backend';
import { Child } from '../../support/child.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { RecordingLogger } from '../../support/recording-logger.js';
import { withMembers } from '../../support/open-backend.js';

describe('the end of an application', () => {
  const happened: string[] = [];

  /** Work that no request waits for, and what it writes to. */
  @Injectable()
  class Import implements BeforeApplicationShutdown, OnApplicationShutdown {
    private readonly ending = new AbortController();
    private readonly done: Promise<void>;

    constructor(@Inject(LockService) private readonly locks: LockService) {
      this.done = this.run();
    }

    async beforeApplicationShutdown(): Promise<void> {
      this.ending.abort();
      await this.done;
      happened.push('the work has ended');
    }

    onApplicationShutdown(): void {
      happened.push(`the database closes; locks closed: ${this.locks.closed}`);
    }

    private async run(): Promise<void> {
      while (!this.ending.signal.aborted) await turn();
      await this.locks.withLock('import', async (lock) => {
        await turn();
        happened.push(`a lock is held: ${lock.held}`);
      });
    }
  }

  class Feature {}
  class Root {}

  it.each(['the root module', 'a module of it'])('ends work, then what %s has, then the locks', async (place) => {
    happened.length = 0;
    const feature = { module: Feature, providers: [Import] };
    const locks = RedisLockModule.forRoot({ backend: memory() });
    const module =
      place === 'the root module'
        ? { module: Root, imports: [locks], providers: [Import] }
        : { module: Root, imports: [feature, locks] };
    const app = await NestFactory.createApplicationContext(module, {
      logger: new RecordingLogger(),
      abortOnError: false,
    });
    const service = app.get(LockService);
    await app.close();
    expect(happened).toEqual([
      'a lock is held: true',
      'the work has ended',
      'the database closes; locks closed: false',
    ]);
    expect(service.closed).toBe(true);
  });

  describe('that the body of a hold asks for', () => {
    type Body = (app: LockApp['app']) => Promise<unknown>;
    const lead = async (app: LockApp['app'], work: (candidacy: Candidacy) => Promise<void>) => {
      const candidacy = app.get(LeaderElection).join('name');
      await candidacy.answered;
      await work(candidacy);
    };
    const bodies: Record<string, Body> = {
      'a lock': (app) => app.get(LockService).withLock('name', () => app.close()),
      'a lock inside of a lock': (app) =>
        app.get(LockService).withLock('outer', () => app.get(LockService).withLock('name', () => app.close())),
      'a lock inside of itself': (app) =>
        app.get(LockService).withLock('name', () => app.get(LockService).withLock('name', () => app.close())),
      'a lock inside of a permit': (app) =>
        app
          .get(SemaphoreService)
          .withPermit('outer', { permits: 1 }, () => app.get(LockService).withLock('name', () => app.close())),
      'a permit': (app) => app.get(SemaphoreService).withPermit('name', { permits: 1 }, () => app.close()),
      'a job': (app) => app.get(ScheduledJobs).run('name', { atMostFor: '1m', atLeastFor: 0 }, () => app.close()),
      'an idempotent run': (app) => app.get(IdempotencyService).run('name', {}, async () => (await app.close(), 1)),
      'a leader': (app) => lead(app, (candidacy) => candidacy.run(() => app.close())),
      onElected: (app) =>
        new Promise((resolve, reject) => {
          app.get(LeaderElection).join('name', { onElected: () => app.close().then(resolve, reject) });
        }),
    };

    it.each(Object.entries(bodies))('does not wait for itself: %s', async (_what, body) => {
      // A shutdown that waited for its caller would take an hour.
      const { app } = await startLockApp({ backend: memory(), shutdownGrace: '1h' });
      const lock = await body(app).catch((error: unknown) => error);
      expect(app.get(LockService).closed).toBe(true);
      // What the body did after the shutdown was not protected.
      if (lock instanceof Error) expect(lock).toMatchObject({ reason: 'shutdown' });
    });

    it('waits for the holds of others, and frees its own for other processes', async () => {
      const backend = memory();
      const one = await startLockApp({ backend, shutdownGrace: '1h' });
      await using two = await startLockApp({ backend });
      const other = await one.locks.acquire('other');
      const permit = await one.app.get(SemaphoreService).acquire('other', { permits: 1 });
      const ended: string[] = [];
      const closing = one.locks
        .withLock('name', async ({ signal }) => {
          signal.addEventListener('abort', () => ended.push('own lock'));
          await one.app.close();
        })
        .catch((error: { reason: string }) => ended.push(error.reason));
      for (let turns = 0; turns < 100; turns++) await turn();
      expect(other.held && permit.held).toBe(true);
      expect(ended).toEqual([]);
      await other.release();
      await permit.release();
      await closing;
      expect(ended).toEqual(['own lock', 'shutdown']);
      await (await two.locks.acquire('name', { wait: 0 })).release();
    });
  });

  it('runs to its end where no answer to a release came, and nothing else keeps the process alive', async () => {
    const child = Child.start('ends-without-answers.mjs');
    await child.says('refused');
    expect(await child.exited).toBe(0);
    await child.says('closed');
  });

  it('keeps the process alive while a call waits, and no longer', async () => {
    const child = Child.start('waits-in-vain.mjs');
    expect(await child.exited).toBe(0);
    expect(await child.says('refused')).toBe('LOCK_TIMEOUT');
    expect(await child.says('also')).toBe('LOCK_TIMEOUT');
    expect(await child.says('permit')).toBe('SEMAPHORE_TIMEOUT');
    expect(await child.says('latch')).toBe('LATCH_TIMEOUT');
    expect(await child.says('loader')).toBe('CACHE_TIMEOUT');
    for (const end of ['lease', 'longest', 'several', 'run']) expect(await child.says(end)).toBe('LOCK_LOST');
    await child.says('ended');
  });

  it('lets the process end once the application has ended, though a loader never settles', async () => {
    const child = Child.start('closes-while-loading.mjs');
    await child.says('closed');
    expect(await child.exited).toBe(0);
  });

  it('keeps the process alive while it stands for a leadership, and no longer', async () => {
    const child = Child.start('leads-alone.mjs');
    expect(await child.exited).toBe(0);
    expect(await child.says('leads')).toBe(true);
    await child.says('closed');
  });
});

describe('a backend of several modules', () => {
  /** A backend that counts how often it was closed. */
  function countedBackend() {
    const backend: LockBackend = memory();
    const count = { closed: 0 };
    const close = backend.close.bind(backend);
    backend.close = () => {
      count.closed += 1;
      return close();
    };
    return { backend, count };
  }

  it('is closed by the last of its modules, however often the others are closed', async () => {
    const { backend, count } = countedBackend();
    const [first, second] = [await startLockApp({ backend }), await startLockApp({ backend })];
    await first.close();
    await first.close();
    expect(count.closed).toBe(0);
    await (await second.locks.acquire('still open')).release();
    await second.close();
    expect(count.closed).toBe(1);
  });

  it('is closed although an application that was to share it failed to start', async () => {
    const { backend, count } = countedBackend();
    @Module({
      imports: [RedisLockModule.forRoot({ backend })],
      providers: [
        {
          provide: 'database',
          useFactory: () => {
            throw new Error('no database');
          },
        },
      ],
    })
    class Broken {}
    await expect(NestFactory.createApplicationContext(Broken, { logger: false, abortOnError: false })).rejects.toThrow(
      'no database',
    );
    const app = await startLockApp({ backend });
    await app.close();
    expect(count.closed).toBe(1);
  });

  it('learns that one of its modules has stopped', async () => {
    const stopped: number[] = [];
    let modules = 0;
    const open = (module: ModuleContext): LockStore => {
      const number = (modules += 1);
      return withMembers(memory().open(module), { stop: () => stopped.push(number) });
    };
    const backend = withMembers(memory(), { open });
    const [first, second] = [await startLockApp({ backend }), await startLockApp({ backend })];
    await first.close();
    expect(stopped).toEqual([1]);
    await second.close();
    expect(stopped).toEqual([1, 2]);
  });
});
