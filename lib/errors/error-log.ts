import type { LoggerService } from '@nestjs/common';

const logged = new WeakSet<Error>();

/** Logs the error unless an earlier call logged the same one: an error may pass several places that log. */
export function logOnce(logger: Pick<LoggerService, 'error'>, error: Error): void {
  if (logged.has(error)) return;
  logged.add(error);
  logger.error(error.message);
}
