export { RedisLockHealthIndicator, type HealthOptions } from './redis-lock.health.js';
