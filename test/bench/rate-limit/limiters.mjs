import { createRequire } from 'node:module';
import { join } from 'node:path';
import { NestFactory } from '@nestjs/core';
import { RateLimiter, RedisLockModule } from 'nest-redis-lock';

/** High enough that no call is denied: a denied call costs less. */
const LIMIT = 1_000_000;

class Root {}

/**
 * Each limiter is a function of a key, which takes one unit on the server; those of peers come from `directory`, where
 * they are installed.
 */
export async function openLimiters(port, directory) {
  const load = createRequire(join(directory, 'package.json'));
  const { Redis } = load('ioredis');
  const { RateLimiterRedis } = load('rate-limiter-flexible');
  const { ThrottlerStorageRedisService } = load('@nest-lab/throttler-storage-redis');
  const redis = { host: '127.0.0.1', port };
  const module = { module: Root, imports: [RedisLockModule.forRoot({ redis })] };
  const app = await NestFactory.createApplicationContext(module, { logger: ['error'] });
  const limiter = app.get(RateLimiter);
  const storage = limiter.throttlerStorage();
  const clients = [new Redis(redis), new Redis(redis)];
  const flexible = new RateLimiterRedis({ storeClient: clients[0], points: LIMIT, duration: 10 });
  const nestLab = new ThrottlerStorageRedisService(clients[1]);
  const options = { limit: LIMIT, per: '10s' };
  return {
    limiters: {
      ours: (key) => limiter.take(key, options),
      'ours, localShare 50': (key) => limiter.take(key, { ...options, localShare: 50 }),
      'ours, as throttler storage': (key) => storage.increment(key, 10_000, LIMIT, 10_000, 'default'),
      'rate-limiter-flexible': (key) => flexible.consume(key),
      '@nest-lab/throttler-storage-redis': (key) => nestLab.increment(key, 10_000, LIMIT, 10_000, 'default'),
    },
    close: async () => {
      await app.close();
      for (const client of clients) client.disconnect();
    },
  };
}
