import 'reflect-metadata';
import { Injectable, type INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  Cached,
  CountDownLatch,
  DistributedLock,
  Idempotent,
  LeaderElection,
  RateLimit,
  RedisLockModule,
  ScheduledLock,
  Semaphore,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { RedisLockMetricsModule } from 'nest-redis-lock/prometheus';
import { Registry } from 'prom-client';
import { patient } from './lock-app.js';

/** A shop that uses each decorator. A method throws for an id below 0. */
@Injectable()
export class ObservedShop {
  @DistributedLock('order:<0>', { wait: 0 })
  async ship(_id: number): Promise<void> {}

  @DistributedLock('slow:<0>', { wait: '20s' })
  async shipInTurn(_id: number, body: () => Promise<unknown> = async () => {}): Promise<void> {
    await body();
  }

  @Cached('product:<0>', { ttl: '1m', loaderTimeout: '2s' })
  async product(id: number): Promise<number> {
    return found(id);
  }

  @Semaphore('report:<0>', { permits: 1, wait: 0 })
  async report(_id: number): Promise<void> {}

  @ScheduledLock('nightly', { atMostFor: '1m', atLeastFor: 0 })
  async nightly(id: number): Promise<void> {
    found(id);
  }

  @ScheduledLock('weekly', { atMostFor: '1m', atLeastFor: 0 })
  async weekly(): Promise<void> {}

  @Idempotent('payment:<0>', { fingerprint: '<1>' })
  async pay(id: number, _euros: number): Promise<number> {
    return found(id);
  }

  @RateLimit('user:<0>', { limit: 100, per: '1s', onLimit: 'skip' })
  async login(_user: string): Promise<void> {}

  @RateLimit('card:<0>', { limit: 100, per: '1s', onFailure: 'closed', onLimit: 'skip' })
  async charge(_card: string): Promise<void> {}
}

function found(id: number): number {
  if (id < 0) throw new Error('there is none');
  return id;
}

export interface ObservedApp extends AsyncDisposable {
  readonly app: INestApplicationContext;
  readonly shop: ObservedShop;
  readonly registry: Registry;
}

/** Starts the shop with its metrics, and stands for the leadership `restock`. */
export async function startObservedShop(options: RedisLockModuleOptions): Promise<ObservedApp> {
  const registry = new Registry();
  class Root {}
  const imports = [
    RedisLockModule.forRoot(patient({ shutdownGrace: 0, ...options })),
    RedisLockMetricsModule.forRoot({ registry }),
  ];
  const module = { module: Root, imports, providers: [ObservedShop] };
  const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
  app.get(LeaderElection).join('restock', { lease: '2s' });
  return { app, shop: app.get(ObservedShop), registry, [Symbol.asyncDispose]: () => app.close() };
}

/** Uses each feature once, so that a scrape shows all metrics. */
export async function useEachFeature({ app, shop }: ObservedApp): Promise<void> {
  await Promise.all([shop.ship(1), shop.shipInTurn(1), shop.product(1), shop.report(1), shop.nightly(1)]);
  await Promise.all([shop.pay(1, 9), shop.login('ann'), shop.charge('visa')]);
  const latches = app.get(CountDownLatch);
  await latches.define('import', { count: 1, ttl: '1m' });
  await latches.countDown('import');
}
