import { Injectable, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  DistributedLock,
  Idempotent,
  memory,
  RateLimit,
  RedisLockModule,
  ScheduledLock,
  Semaphore,
} from 'nest-redis-lock';
import { RecordingLogger } from '../../support/recording-logger.js';

@Injectable()
class Orders {
  @DistributedLock('order:<0>', { backend: 'critcal' })
  async place(_id: string): Promise<void> {}

  @Semaphore('payment', { permits: 5, backend: 'payments' })
  async pay(): Promise<void> {}

  @RateLimit('customer:<0>', { limit: 10, per: '1s', backend: 'limits' })
  async ask(_customer: string): Promise<void> {}

  @Idempotent('order:<0>', { ttl: '1h', backend: 'keys' })
  async once(_id: string): Promise<void> {}

  @ScheduledLock('nightly', { atMostFor: '1m', atLeastFor: 0, backend: 'jobs' })
  async report(): Promise<void> {}

  @DistributedLock('stock:<0>', { backend: 'critical' })
  async count(_sku: string): Promise<void> {}

  @DistributedLock('price:<0>')
  async price(_sku: string): Promise<void> {}
}

@Injectable()
class MoreOrders extends Orders {}

async function warningsOf(providers: Type[], modules = [RedisLockModule.forRoot(twoBackends())]): Promise<string[]> {
  class Root {}
  const logger = new RecordingLogger();
  const app = await NestFactory.createApplicationContext({ module: Root, imports: modules, providers }, { logger });
  await app.close();
  return logger.matching(/Option "backend"/);
}

const twoBackends = () => ({ backend: memory(), backends: { critical: memory() } });

it('warns at the start of each decorator that names a backend which there is none of', async () => {
  const known = `give a name of the module's "backends" ("critical"); each call throws this`;
  expect(await warningsOf([Orders, MoreOrders])).toEqual([
    `@DistributedLock of Orders.place: Option "backend" is "critcal"; ${known}`,
    `@Semaphore of Orders.pay: Option "backend" is "payments"; ${known}`,
    `@RateLimit of Orders.ask: Option "backend" is "limits"; ${known}`,
    `@Idempotent of Orders.once: Option "backend" is "keys"; ${known}`,
    `@ScheduledLock of Orders.report: Option "backend" is "jobs"; ${known}`,
  ]);
});

it('warns of none where several modules have backends, any of which may serve the method', async () => {
  const modules = [
    RedisLockModule.forRoot(twoBackends()),
    RedisLockModule.forRoot({ ...twoBackends(), isGlobal: false }),
  ];
  expect(await warningsOf([Orders], modules)).toEqual([]);
});
