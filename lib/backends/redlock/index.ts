export { redlock } from './redlock-lock-backend.js';
export type { RedlockOptions } from './redlock-options.js';
