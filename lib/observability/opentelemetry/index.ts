export { RedisLockTelemetryModule, type TelemetryOptions } from './redis-lock-telemetry.module.js';
