import type { LoggerService } from '@nestjs/common';
import type { LockError } from './lock-errors.js';

const logged = new WeakSet<LockError>();

/** One line for one error, however many places it passes. */
export function logOnce(logger: Pick<LoggerService, 'error'>, error: LockError): void {
  if (logged.has(error)) return;
  logged.add(error);
  logger.error(error.message);
}
