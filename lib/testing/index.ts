export { RedisLockTestingModule } from './redis-lock-testing.module.js';
export { testServices, wire, type TestServices } from './wire.js';
