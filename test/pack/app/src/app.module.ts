import { Module, type OnApplicationShutdown } from '@nestjs/common';
import { Redis } from 'ioredis';
import { redis, RedisLockModule } from 'nest-redis-lock';
import { WorkController } from './work.controller.js';

const url = process.env['REDIS_URL'] ?? 'redis://127.0.0.1:6379';
const client = new Redis(url);

/** Locks on a client that the library makes and, as backend `own`, on one that the application made. */
@Module({
  imports: [RedisLockModule.forRoot({ redis: url, backends: { own: redis(client) }, commandTimeout: '10s' })],
  controllers: [WorkController],
})
export class AppModule implements OnApplicationShutdown {
  async onApplicationShutdown(signal?: string): Promise<void> {
    await client.quit();
    console.log(`closed after ${signal}`);
  }
}
