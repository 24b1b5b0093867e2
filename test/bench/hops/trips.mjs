import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  Cached,
  CacheService,
  DistributedLock,
  LockService,
  RateLimit,
  RedisLockModule,
  Semaphore,
} from 'nest-redis-lock';

class Shop {
  async order(id) {
    return id;
  }

  async product(id) {
    return { id };
  }

  async search(id) {
    return id;
  }

  async report(id) {
    return id;
  }
}
decorate('order', DistributedLock('order:<0>'));
decorate('product', Cached('product:<0>', { ttl: '1h' }));
decorate('search', RateLimit('search:<0>', { limit: 1_000_000, per: '1m' }));
decorate('report', Semaphore('report:<0>', { permits: 8 }));
Injectable()(Shop);

/** As a compiler with `emitDecoratorMetadata` does it. */
function decorate(name, decorator) {
  Reflect.defineMetadata('design:returntype', Promise, Shop.prototype, name);
  const descriptor = Object.getOwnPropertyDescriptor(Shop.prototype, name);
  decorator(Shop.prototype, name, descriptor);
  Object.defineProperty(Shop.prototype, name, descriptor);
}

/** The calls that are counted, in two applications on the Redis at this port. */
export async function openTrips(port) {
  const [app, other] = await Promise.all([application(port), application(port)]);
  const [locks, cache, shop] = [LockService, CacheService, Shop].map((type) => app.get(type));
  const trips = [
    { title: 'a free lock, @DistributedLock', call: () => shop.order('1') },
    { title: 'a cached hit, @Cached', call: () => shop.product('1') },
    { title: 'a cached miss, @Cached', ...missOf(shop) },
    { title: 'a rate limit, @RateLimit', call: () => shop.search('1') },
    { title: 'a semaphore permit, @Semaphore', call: () => shop.report('1') },
    { title: 'a free lock, withLock', call: () => locks.withLock('bare', async () => 1) },
    { title: 'a cached hit, getOrSet', call: () => cache.getOrSet('bare', async () => 1, { ttl: '1h' }) },
    // The last: `acquire` outside of any scope leaves a mark in the async context, which the calls after it would find.
    { title: 'a hand-over between two services', ...handOver(locks, other.get(LockService)) },
  ];
  return { trips, close: () => Promise.all([app.close(), other.close()]) };
}

function application(port) {
  class Root {}
  const imports = [RedisLockModule.forRoot({ redis: { host: '127.0.0.1', port } })];
  const module = { module: Root, imports, providers: [Shop] };
  return NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
}

function missOf(shop) {
  let misses = 0;
  return { prepare: async () => `miss-${++misses}`, call: (id) => shop.product(id) };
}

/** One service holds a lock for which the other one waits; counted are the release and what follows. */
function handOver(mine, theirs) {
  let turns = 0;
  return {
    warmUp: 10,
    calls: 8,
    async prepare() {
      const name = `turn-${++turns}`;
      const held = await mine.acquire(name);
      const next = theirs.acquire(name, { wait: 5_000 });
      while (((await mine.inspect(name))?.waiting ?? 0) === 0) await sleep(2);
      await sleep(5);
      return { held, next };
    },
    async call({ held, next }) {
      await held.release();
      await (await next).release();
    },
  };
}
