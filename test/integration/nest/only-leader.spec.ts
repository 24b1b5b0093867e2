import { Controller, Injectable, Post, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Interval, ScheduleModule } from '@nestjs/schedule';
import {
  LeaderElection,
  LockLostError,
  memory,
  NotLeaderError,
  OnlyLeader,
  PrimitiveConfigError,
  PrimitiveKeyError,
  PrimitiveNotWiredError,
  RedisLockModule,
} from 'nest-redis-lock';
import { testServices, wire } from 'nest-redis-lock/testing';
import { of } from 'rxjs';
import { eventually } from '../../support/eventually.js';
import { start } from '../../support/transport-app.js';

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
      await NestFactory.createApplicationContext({ module: Root, imports, providers: [Restocker] }, { logger: false }),
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
  expect(decorate('report', { ttl: 1 })).toThrow('Unknown option of @OnlyLeader "ttl"');
  expect(decorate('report', { elsewhere: 'wait' })).toThrow(
    new PrimitiveConfigError(`Option "elsewhere" is "wait"; give 'skip' or 'throw'`),
  );
  expect(decorate('report', { onElected: () => {} })).toThrow('Unknown option of @OnlyLeader "onElected"');
});
