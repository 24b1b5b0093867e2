import { BullModule, Processor, WorkerHost } from '@nestjs/bullmq';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, Interval, ScheduleModule } from '@nestjs/schedule';
import { Queue, QueueEvents, type Job } from 'bullmq';
import {
  DistributedLock,
  memory,
  PrimitiveConfigError,
  PrimitiveKeyError,
  PrimitiveNotWiredError,
  RedisLockModule,
  ScheduledJobs,
  ScheduledLock,
  type ScheduledJobEvent,
} from 'nest-redis-lock';
import { testServices, wire } from 'nest-redis-lock/testing';
import { Observable, of } from 'rxjs';
import { eventually } from '../../support/eventually.js';
import { FaultyBackend } from '../../support/faulty-backend.js';
import { startLockApp } from '../../support/lock-app.js';
import { RecordingLogger } from '../../support/recording-logger.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { clearRuns, ran, Witness, start } from '../../support/transport-app.js';

clearRuns();

const FREE = { atMostFor: '5m', atLeastFor: 0 } as const;

it('stands above and below @Cron and @Interval', async () => {
  @Injectable()
  class Jobs extends Witness {
    @Interval(20)
    @ScheduledLock('interval', FREE)
    async intervalAbove(): Promise<void> {
      this.witness('intervalAbove');
    }

    @ScheduledLock('interval-below', FREE)
    @Interval(20)
    async intervalBelow(): Promise<void> {
      this.witness('intervalBelow');
    }

    @Cron('* * * * * *')
    @ScheduledLock('cron', FREE)
    async cronAbove(): Promise<void> {
      this.witness('cronAbove');
    }

    @ScheduledLock('cron-below', FREE)
    @Cron('* * * * * *')
    async cronBelow(): Promise<void> {
      this.witness('cronBelow');
    }
  }
  const started = await start({ imports: [ScheduleModule.forRoot()], providers: [Jobs] });
  await eventually(() => ran.size === 4);
  expect(Object.fromEntries(ran)).toEqual({
    intervalAbove: ['schedule:interval'],
    intervalBelow: ['schedule:interval-below'],
    cronAbove: ['schedule:cron'],
    cronBelow: ['schedule:cron-below'],
  });
  await started.app.close();
});

it('runs a repeated BullMQ job once within atLeastFor; the others complete without running', async () => {
  await using redis = await startRedisServer();
  const connection = { host: '127.0.0.1', port: redis.port };
  const ranJobs: string[] = [];

  @Processor('reports')
  class Reports extends WorkerHost {
    @ScheduledLock('report', { atMostFor: '5m', atLeastFor: '1m' })
    async process({ name }: Job): Promise<string | undefined> {
      ranJobs.push(name);
      return 'made';
    }
  }
  const started = await start({
    imports: [BullModule.forRoot({ connection }), BullModule.registerQueue({ name: 'reports' })],
    providers: [Reports],
  });
  const queue = new Queue('reports', { connection });
  const events = new QueueEvents('reports', { connection });
  try {
    await events.waitUntilReady();
    const results = [];
    for (const name of ['one', 'two']) {
      const job = await queue.add(name, {});
      results.push(await job.waitUntilFinished(events, 10_000));
    }
    expect(results).toEqual(['made', null]);
    expect(ranJobs).toEqual(['one']);
  } finally {
    await events.close();
    await queue.close();
    await started.app.close();
  }
});

it('does not run where the backend fails: the scheduler logs it, and the next tick runs', async () => {
  const faulty = new FaultyBackend(memory());
  const logger = new RecordingLogger();
  const unhandled: unknown[] = [];
  const note = (error: unknown) => unhandled.push(error);
  let runs = 0;

  @Injectable()
  class Jobs {
    @Interval(50)
    @ScheduledLock('report', FREE)
    async report(): Promise<void> {
      runs += 1;
    }
  }
  @Module({
    imports: [ScheduleModule.forRoot(), RedisLockModule.forRoot({ backend: faulty.backend })],
    providers: [Jobs],
  })
  class App {}
  process.on('unhandledRejection', note);
  const app = await NestFactory.createApplicationContext(App, { logger });
  try {
    const events: ScheduledJobEvent[] = [];
    app.get(ScheduledJobs).events.subscribe((event) => events.push(event));
    faulty.arm(0, 'refused');
    await eventually(() => events.some(({ kind }) => kind === 'unavailable'));
    const before = runs;
    await eventually(() => runs > before);
    expect(events.find(({ kind }) => kind === 'unavailable')).toMatchObject({
      name: 'report',
      error: { code: 'LOCK_BACKEND' },
    });
    expect(logger.matching(/enqueue refused|acquire refused/)).toHaveLength(1);
    expect(unhandled).toEqual([]);
  } finally {
    process.off('unhandledRejection', note);
    await app.close();
  }
});

it('works on an instance made with new, once it is wired', async () => {
  class Jobs {
    runs = 0;

    @ScheduledLock('report', { atMostFor: '5m', atLeastFor: '1m' })
    async report(): Promise<number | undefined> {
      this.runs += 1;
      return this.runs;
    }
  }
  const services = testServices();
  const [one, two] = [wire(new Jobs(), services), wire(new Jobs(), services)];
  expect([await one.report(), await two.report()]).toEqual([1, undefined]);
  expect(await services.jobs.lastRun('report')).toMatchObject({ outcome: 'succeeded' });
  await services.close();
  await expect(new Jobs().report()).rejects.toThrow(PrimitiveNotWiredError);
});

it('keeps the signal of the run for the code inside', async () => {
  const services = testServices();
  class Jobs {
    @ScheduledLock('report', { atMostFor: 1_000, atLeastFor: 0 })
    async report(): Promise<void> {
      await eventually(() => services.locks.current()?.signal.aborted);
    }
  }
  await expect(wire(new Jobs(), services).report()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
});

it('fails where the method returns an Observable, of which nothing has run', async () => {
  class Jobs {
    @ScheduledLock('observable', { atMostFor: '1m', atLeastFor: 0 })
    async report(): Promise<unknown> {
      return of(1);
    }
  }
  const services = testServices();
  await expect(wire(new Jobs(), services).report()).rejects.toThrow(
    new PrimitiveConfigError(
      'Jobs.report returned an Observable, so that nothing of it has run; return a promise, as of firstValueFrom()',
    ),
  );
  await services.close();
});

it('refuses at decoration what it cannot take', () => {
  const decorate = (name: string, options: object) => () => {
    class Jobs {
      @ScheduledLock(name, options as { atMostFor: number; atLeastFor: number })
      async report(): Promise<void> {}
    }
    return Jobs;
  };
  expect(decorate('report', { atMostFor: '1s', atLeastFor: '2s' })).toThrow(PrimitiveConfigError);
  expect(decorate('report', { atMostFor: '1s', atLeastFor: 0, ttl: 1 })).toThrow('Unknown option');
  expect(decorate('report:<0>', { atMostFor: '1s', atLeastFor: 0 })).toThrow(PrimitiveKeyError);
  expect(() => {
    class Streams {
      // @ts-expect-error an Observable begins when it is subscribed to
      @ScheduledLock('report', FREE)
      report(): Observable<number> {
        return of(1);
      }
    }
    return Streams;
  }).toThrow(PrimitiveConfigError);
});

it('tells that a backend keeps no records, and runs the job there', async () => {
  await using app = await startLockApp({ backend: new FaultyBackend(memory()).backend });
  const jobs = app.app.get(ScheduledJobs);
  expect(await jobs.run('report', FREE, async () => 'made')).toBe('made');
  await expect(jobs.lastRun('report')).rejects.toThrow('Records of scheduled jobs need a backend that keeps them');
});

it('stands below @DistributedLock, which then waits for its turn', async () => {
  class Jobs {
    @DistributedLock('catalogue')
    @ScheduledLock('report', FREE)
    async report(): Promise<string | undefined> {
      return 'made';
    }
  }
  expect(await wire(new Jobs()).report()).toBe('made');
});
