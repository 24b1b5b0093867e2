export type { HealthOptions } from './health-options.js';
export { RedisLockHealthIndicator } from './redis-lock.health.js';
