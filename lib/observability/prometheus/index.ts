export type { MetricsOptions } from './metrics-options.js';
export { RedisLockMetricsModule } from './redis-lock-metrics.module.js';
