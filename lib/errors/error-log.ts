import type { LimitedLog } from './limited-log.js';

const logged = new WeakSet<Error>();

/** Logs the error once, although it may pass several places that log; `kind` as for `LimitedLog`. */
export function logOnce(log: Pick<LimitedLog, 'error'>, error: Error, line = error.message, kind?: string): void {
  if (logged.has(error)) return;
  logged.add(error);
  log.error(line, kind);
}
