export type { RedisConnection } from '../../options/redis-connection.js';
export { redlock } from './redlock-lock-backend.js';
export type { RedlockOptions } from './redlock-options.js';
