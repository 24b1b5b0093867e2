import { Module, type DynamicModule, type MiddlewareConsumer, type NestModule } from '@nestjs/common';
import { APP_FILTER, APP_GUARD } from '@nestjs/core';
import { ScheduleModule } from '@nestjs/schedule';
import { TerminusModule } from '@nestjs/terminus';
import { RateLimitGuard, redis, RedisLockModule, type RedisLockModuleOptions } from 'nest-redis-lock';
import { RedisLockMetricsModule } from 'nest-redis-lock/prometheus';
import { Registry } from 'prom-client';
import { CatalogueController } from './catalogue/catalogue.controller.js';
import { CatalogueService } from './catalogue/catalogue.service.js';
import { Database } from './database/database.js';
import { DeductionController } from './deduction/deduction.controller.js';
import { DeductionService } from './deduction/deduction.service.js';
import { OrderBook } from './deduction/order-book.js';
import { AtomicDeduction } from './deduction/strategies/atomic.deduction.js';
import { FencedDeduction } from './deduction/strategies/fenced.deduction.js';
import { LockDeduction } from './deduction/strategies/lock.deduction.js';
import { NoneDeduction } from './deduction/strategies/none.deduction.js';
import { OptimisticDeduction } from './deduction/strategies/optimistic.deduction.js';
import { PessimisticDeduction } from './deduction/strategies/pessimistic.deduction.js';
import { NaiveLock, SetnxDeduction, SetnxExpiryDeduction } from './deduction/strategies/setnx.deduction.js';
import { ConnectionDrainMiddleware } from './http/connection-drain.middleware.js';
import { ErrorBodyFilter } from './http/error-body.js';
import { openLockBackend } from './lock-backend.js';
import { HealthController } from './operations/health.controller.js';
import { CacheStatsController, MetricsController } from './operations/metrics.controller.js';
import { OrdersController } from './orders/orders.controller.js';
import { OrdersService } from './orders/orders.service.js';
import { PaymentsService } from './payments/payments.service.js';
import { ProductsController } from './products/products.controller.js';
import { ProductsService } from './products/products.service.js';
import { RestockController } from './restock/restock.controller.js';
import { RestockService } from './restock/restock.service.js';
import { LOCK_TTL, PRIMITIVE_BACKEND, SETTINGS, type Settings } from './settings.js';
import { StockReportService } from './stock-report/stock-report.service.js';

@Module({})
export class ShopModule implements NestModule {
  configure(consumer: MiddlewareConsumer): void {
    consumer.apply(ConnectionDrainMiddleware).forRoutes('*path');
  }

  static with(settings: Settings): DynamicModule {
    const registry = new Registry();
    return {
      module: ShopModule,
      imports: [
        RedisLockModule.forRootAsync({ useFactory: () => lockOptions(settings) }),
        RedisLockMetricsModule.forRoot({ registry }),
        ScheduleModule.forRoot(),
        TerminusModule,
      ],
      controllers: [
        ProductsController,
        DeductionController,
        OrdersController,
        CatalogueController,
        RestockController,
        HealthController,
        CacheStatsController,
        MetricsController,
      ],
      providers: [
        { provide: SETTINGS, useValue: settings },
        { provide: Registry, useValue: registry },
        { provide: APP_FILTER, useClass: ErrorBodyFilter },
        // Limits the routes that have a policy.
        ...(settings.without?.has('rate-limit') ? [] : [{ provide: APP_GUARD, useClass: RateLimitGuard }]),
        Database,
        ProductsService,
        OrderBook,
        DeductionService,
        NoneDeduction,
        LockDeduction,
        FencedDeduction,
        PessimisticDeduction,
        OptimisticDeduction,
        AtomicDeduction,
        NaiveLock,
        SetnxDeduction,
        SetnxExpiryDeduction,
        OrdersService,
        PaymentsService,
        CatalogueService,
        RestockService,
        StockReportService,
      ],
    };
  }
}

/** Locks, cache and primitives in one Redis; or the locks in another store. */
export async function lockOptions({
  lockStore,
  lockPrefix,
  lockTtl = LOCK_TTL,
  redisUrl,
}: Settings): Promise<RedisLockModuleOptions> {
  return {
    ...(lockStore
      ? { backend: await openLockBackend(lockStore, lockTtl), cache: { redis: redisUrl } }
      : { redis: redisUrl }),
    backends: { [PRIMITIVE_BACKEND]: redis(redisUrl) },
    defaults: { ttl: lockTtl },
    ...(lockPrefix !== undefined && { prefix: lockPrefix }),
  };
}
