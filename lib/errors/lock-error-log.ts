import type { LoggerService } from '@nestjs/common';

const logged = new WeakSet<Error>();

/** One line for one error, however many places it passes. */
export function logOnce(logger: Pick<LoggerService, 'error'>, error: Error): void {
  if (logged.has(error)) return;
  logged.add(error);
  logger.error(error.message);
}
