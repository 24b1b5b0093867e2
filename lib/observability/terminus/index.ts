export type { HealthOptions } from './redis-lock.health.js';
export { RedisLockHealthIndicator } from './redis-lock.health.js';
