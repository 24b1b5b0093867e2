export { RedisLockTelemetryModule } from './redis-lock-telemetry.module.js';
export type { TelemetryOptions } from './redis-lock-telemetry.module.js';
