// An HTTP application with ThrottlerGuard of @nestjs/throttler, which counts at the Redis server of argument 2.
// Argument 3: 'express' or 'fastify'. jest cannot load @nestjs/throttler: it is CommonJS, and requires the ES modules
// of Nest.
import 'reflect-metadata';
import { Controller, Get } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { SkipThrottle, Throttle, ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler';
import { RateLimiter, RedisLockModule } from 'nest-redis-lock';
import { say } from './lock-app.mjs';

class OrderController {
  list() {
    return 'orders';
  }
  unblocked() {
    return 'blocked until the window ends';
  }
  unlimited() {
    return 'not counted';
  }
}
const decorate = (method, ...decorators) => {
  const { prototype } = OrderController;
  Reflect.decorate(decorators, prototype, method, Object.getOwnPropertyDescriptor(prototype, method));
};
decorate('list', Get());
decorate('unblocked', Get('unblocked'), Throttle({ default: { limit: 1, ttl: 60_000, blockDuration: 0 } }));
decorate('unlimited', Get('unlimited'), SkipThrottle());
Reflect.decorate([Controller('orders')], OrderController);

const throttler = ThrottlerModule.forRootAsync({
  inject: [RateLimiter],
  useFactory: (limiter) => ({
    throttlers: [{ ttl: 60_000, limit: 3, blockDuration: 300_000 }],
    storage: limiter.throttlerStorage(),
  }),
});
class App {}
const module = {
  module: App,
  imports: [RedisLockModule.forRoot({ redis: { host: '127.0.0.1', port: Number(process.argv[2]) } }), throttler],
  controllers: [OrderController],
  providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
};
const adapter = process.argv[3] === 'fastify' ? new FastifyAdapter() : new ExpressAdapter();
const app = await NestFactory.create(module, adapter, { logger: ['error'] });
await app.listen(0, '127.0.0.1');
// The parent process is gone.
setInterval(() => process.ppid === 1 && process.exit(3), 1_000).unref();
say('url', await app.getUrl());
