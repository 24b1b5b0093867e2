// A dependency of the application that is an ES module.
import { LockService, RedisLockModule } from 'nest-redis-lock';

export { LockService };

export const lockModule = RedisLockModule.forRoot({ redis: process.env.REDIS_URL, commandTimeout: '10s' });
