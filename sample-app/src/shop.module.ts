import { Module, type DynamicModule, type MiddlewareConsumer, type NestModule } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { ScheduleModule } from '@nestjs/schedule';
import { TerminusModule } from '@nestjs/terminus';
import { RedisLockModule } from 'nest-redis-lock';
import { ConnectionDrainMiddleware } from './connection-drain.middleware.js';
import { CacheStatsController } from './cache-stats/cache-stats.controller.js';
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
import { ErrorBodyFilter } from './errors/error-body.filter.js';
import { HealthController } from './health/health.controller.js';
import { ProductsController } from './products/products.controller.js';
import { ProductsService } from './products/products.service.js';
import { LOCK_TTL, SETTINGS, type Settings } from './settings.js';
import { StockReportService } from './stock-report/stock-report.service.js';

@Module({})
export class ShopModule implements NestModule {
  configure(consumer: MiddlewareConsumer): void {
    consumer.apply(ConnectionDrainMiddleware).forRoutes('*path');
  }

  static with(settings: Settings): DynamicModule {
    return {
      module: ShopModule,
      imports: [
        RedisLockModule.forRoot({
          redis: settings.redisUrl,
          defaults: { ttl: settings.lockTtl ?? LOCK_TTL },
          ...(settings.lockPrefix !== undefined && { prefix: settings.lockPrefix }),
        }),
        ScheduleModule.forRoot(),
        TerminusModule,
      ],
      controllers: [ProductsController, DeductionController, HealthController, CacheStatsController],
      providers: [
        { provide: SETTINGS, useValue: settings },
        { provide: APP_FILTER, useClass: ErrorBodyFilter },
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
        StockReportService,
      ],
    };
  }
}
