import { setImmediate as turn } from 'node:timers/promises';
import { type BeforeApplicationShutdown, Inject, Injectable, Module, type OnApplicationShutdown } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { type LockBackend, LockService, memory, RedisLockModule, type StartRequest } from 'nest-redis-lock';
import { Child } from '../../support/child.js';
import { startLockApp } from '../../support/lock-app.js';
import { RecordingLogger } from '../../support/recording-logger.js';

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
    const { backend } = countedBackend();
    const requests: StartRequest[] = [];
    backend.start = async (request) => void requests.push(request);
    const [first, second] = [await startLockApp({ backend }), await startLockApp({ backend })];
    await first.close();
    expect(requests.map(({ stopped }) => stopped?.aborted)).toEqual([true, false]);
    await second.close();
    expect(requests.map(({ stopped }) => stopped?.aborted)).toEqual([true, true]);
  });
});
