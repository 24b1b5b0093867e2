export { RedisLockMetricsModule, type MetricsOptions } from './redis-lock-metrics.module.js';
