export { RedisLockTelemetryModule } from './redis-lock-telemetry.module.js';
export type { TelemetryOptions } from './telemetry-options.js';
