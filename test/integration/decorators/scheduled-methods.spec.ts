import { BullModule, Processor, WorkerHost } from '@nestjs/bullmq';
import { Controller, Injectable, Module, Post, StreamableFile, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, Interval, ScheduleModule } from '@nestjs/schedule';
import { type Job, Queue, QueueEvents } from 'bullmq';
import {
  DistributedLock,
  LeaderElection,
  LockLostError,
  memory,
  NotLeaderError,
  OnlyLeader,
  PrimitiveConfigError,
  PrimitiveKeyError,
  PrimitiveNotWiredError,
  RedisLockModule,
  type ScheduledJobEvent,
  ScheduledJobs,
  ScheduledLock,
} from 'nest-redis-lock';
import { testServices, wire } from 'nest-redis-lock/testing';
import { Observable, of } from 'rxjs';
import { eventually } from '../../support/eventually.js';
import { FaultyBackend } from '../../support/faulty-backend.js';
import { startLockApp } from '../../support/lock-app.js';
import { RecordingLogger } from '../../support/recording-logger.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { clearRuns, ran, start, Witness } from '../../support/transport-app.js';

/** Names with what looks like a placeholder, and what that is. */
const LIKE_PLACEHOLDERS = [
  ['report:${tenant}', '${tenant}'],
  ['report:{0}', '{0}'],
  ['report:#id', '#id'],
  ['report:<tenant>', '<tenant>'],
  ['report:<0', '<0'],
  ['report:0>', '>'],
] as const;

async function* read(): AsyncGenerator<number> {
  yield 1;
}

describe('@ScheduledLock', () => {
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

  it.each<[kind: string, make: () => unknown]>([
    ['an iterable', read],
    ['a StreamableFile', () => new StreamableFile(Buffer.from('x'))],
    ['a Response', () => new Response('x')],
  ])('fails where the method resolves to %s, which is read later', async (kind, make) => {
    class Jobs {
      @ScheduledLock('iterable', { atMostFor: '1m', atLeastFor: 0 })
      async report(): Promise<unknown> {
        return make();
      }

      @OnlyLeader('iterable')
      async restock(): Promise<unknown> {
        return make();
      }
    }
    const services = testServices();
    const jobs = wire(new Jobs(), services);
    const error = (name: string) =>
      new PrimitiveConfigError(
        `Jobs.${name} resolved to ${kind}, which runs while its caller reads it; read it to its end and return its content`,
      );
    await expect(jobs.report()).rejects.toThrow(error('report'));
    expect(await services.jobs.lastRun('iterable')).toMatchObject({ outcome: 'failed' });
    await expect(jobs.restock()).rejects.toThrow(error('restock'));
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
    for (const [name, found] of LIKE_PLACEHOLDERS) {
      const refusal = new PrimitiveKeyError(
        `The name "${name}" has "${found}", which nothing replaces: all calls would share one name. Leave it out; for a ` +
          'name of the arguments, call ScheduledJobs.run()',
      );
      expect(decorate(name, { atMostFor: '1s', atLeastFor: 0 })).toThrow(refusal);
    }
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
});

describe('@OnlyLeader', () => {
  @Injectable()
  class Restocker {
    runs = 0;

    @Interval(20)
    @OnlyLeader('restock')
    async above(): Promise<void> {
      this.runs += 1;
    }

    @OnlyLeader('restock')
    @Interval(20)
    async below(): Promise<void> {
      this.runs += 1;
    }

    @OnlyLeader('restock', { elsewhere: 'throw' })
    async now(): Promise<number> {
      this.runs += 1;
      return this.runs;
    }
  }

  /** Applications that share their locks. */
  async function startApps(number: number) {
    const backend = memory();
    class Root {}
    const imports = [ScheduleModule.forRoot(), RedisLockModule.forRoot({ backend })];
    const apps = [];
    for (let index = 0; index < number; index++) {
      apps.push(
        await NestFactory.createApplicationContext(
          { module: Root, imports, providers: [Restocker] },
          { logger: false },
        ),
      );
    }
    return apps;
  }

  it('stands from the start of the application, and runs scheduled methods on the leader only', async () => {
    const [one, two] = await startApps(2);
    const [here, there] = [one?.get(Restocker) as Restocker, two?.get(Restocker) as Restocker];
    await eventually(() => here.runs > 2);
    expect(there.runs).toBe(0);
    await expect(there.now()).rejects.toThrow(NotLeaderError);
    await one?.close();
    await eventually(() => there.runs > 2);
    expect(await there.now()).toBe(there.runs);
    await two?.close();
  });

  it('answers 503 where another process leads', async () => {
    @Controller()
    class Stock {
      @Post('restock')
      @OnlyLeader('restock', { elsewhere: 'throw' })
      async restock(): Promise<string> {
        return 'done';
      }
    }
    await using started = await start({ controllers: [Stock] });
    const election = started.app.get(LeaderElection);
    await eventually(() => election.isLeader('restock'));
    const post = () => fetch(`${started.url}/restock`, { method: 'POST' });
    expect((await post()).status).toBe(201);
    await election.candidacy('restock')?.leave();
    const held = await started.locks.acquire('leader:restock');
    const answer = await post();
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({ code: 'NOT_LEADER' });
    await held.release();
  });

  it('works on an instance made with new, once it is wired', async () => {
    const services = testServices();
    const other = testServices();
    const restocker = wire(new Restocker(), services);
    expect(await restocker.now()).toBe(1);
    await restocker.above();
    expect(restocker.runs).toBe(2);
    expect(services.leaders.isLeader('restock')).toBe(true);
    await services.close();
    expect(services.leaders.isLeader('restock')).toBe(false);
    await other.close();
    await expect(new Restocker().now()).rejects.toThrow(PrimitiveNotWiredError);
  });

  it('runs nothing once its process has left, or while it shuts down, and does not stand again', async () => {
    const services = testServices();
    const restocker = wire(new Restocker(), services);
    expect(await restocker.now()).toBe(1);
    await services.leaders.candidacy('restock')?.leave();
    const idle = async () => {
      await restocker.above();
      await expect(restocker.now()).rejects.toThrow(NotLeaderError);
      expect(services.leaders.candidacy('restock')).toBeUndefined();
    };
    await idle();
    services.leaders.join('restock');
    await eventually(() => services.leaders.isLeader('restock'));
    expect(await restocker.now()).toBe(2);
    await services.close();
    await idle();
    expect(restocker.runs).toBe(2);
  });

  it('rejects when the lease was lost before the method ended', async () => {
    const services = testServices();
    class Stolen {
      @OnlyLeader('restock')
      async restock(): Promise<void> {
        await services.locks.forceRelease('leader:restock');
      }
    }
    await expect(wire(new Stolen(), services).restock()).rejects.toThrow(LockLostError);
    await services.close();
  });

  describe('two methods of one leadership', () => {
    const startWith = async (...providers: Type[]) => {
      class Root {}
      const module = { module: Root, imports: [RedisLockModule.forRoot({ backend: memory() })], providers };
      const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
      return { app, [Symbol.asyncDispose]: () => app.close() };
    };

    @Injectable()
    class Orders {
      @OnlyLeader('stock')
      async order(): Promise<void> {}
    }

    @Injectable()
    class Stock {
      @OnlyLeader('stock', { lease: '5s' })
      async restock(): Promise<void> {}
    }

    @Injectable()
    class Reports {
      @OnlyLeader('stock', { lease: '30s' })
      async report(): Promise<void> {}
    }

    @Injectable()
    class MoreStock extends Stock {}

    it('stand with the options of the one that has them, in whatever order', async () => {
      for (const providers of [
        [Orders, Stock, MoreStock],
        [MoreStock, Stock, Orders],
      ]) {
        await using started = await startWith(...providers);
        const leaders = started.app.get(LeaderElection);
        expect(() => leaders.join('stock', { lease: 5_000 })).not.toThrow();
        expect(() => leaders.join('stock', { lease: 6_000 })).toThrow('with 5000 already');
      }
    });

    it('are refused at the start with different leases, and both places are named', async () => {
      await expect(startWith(Orders, Stock, Reports)).rejects.toThrow(
        new PrimitiveConfigError(
          '@OnlyLeader("stock") has the lease 5000 on Stock.restock, but 30000 on Reports.report; give both the same, ' +
            'or leave it out of one',
        ),
      );
    });
  });

  it('fails where the method returns an Observable, of which nothing has run', async () => {
    class Restock {
      @OnlyLeader('restock')
      async restock(): Promise<unknown> {
        return of(1);
      }
    }
    const services = testServices();
    await expect(wire(new Restock(), services).restock()).rejects.toThrow(
      'Restock.restock returned an Observable, so that nothing of it has run',
    );
    await services.close();
  });

  it('refuses at decoration what it cannot take', () => {
    const decorate = (name: string, options: object) => () => {
      class Jobs {
        @OnlyLeader(name, options)
        async report(): Promise<void> {}
      }
      return Jobs;
    };
    expect(decorate('', {})).toThrow(PrimitiveKeyError);
    expect(decorate('report:<0>', {})).toThrow(PrimitiveKeyError);
    expect(decorate('report:<#0.id>', {})).toThrow('call LeaderElection.join()');
    for (const [name, found] of LIKE_PLACEHOLDERS) {
      expect(decorate(name, {})).toThrow(PrimitiveKeyError);
      expect(decorate(name, {})).toThrow(`The name "${name}" has "${found}", which nothing replaces`);
    }
    expect(decorate('report', { ttl: 1 })).toThrow('Unknown option of @OnlyLeader "ttl"');
    expect(decorate('report', { elsewhere: 'wait' })).toThrow(
      new PrimitiveConfigError(`Option "elsewhere" is "wait"; give 'skip' or 'throw'`),
    );
    expect(decorate('report', { onElected: () => {} })).toThrow('Unknown option of @OnlyLeader "onElected"');
  });
});
