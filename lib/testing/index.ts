export { RedisLockTestingModule } from './redis-lock-testing.module.js';
