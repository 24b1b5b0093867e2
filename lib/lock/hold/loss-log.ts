import { logOnce } from '../../errors/error-log.js';
import type { LockLostError, LockLostReason } from '../../errors/lock-errors.js';
import type { LockBackends } from '../backend/lock-backends.js';

const REMEDIES: Record<LockLostReason, string> = {
  expired: 'check the fencing token where it writes; a longer "ttl" outlasts longer outages',
  taken: 'it was deleted or freed by force: check the fencing token where it writes',
  maxHold: 'do less in one hold, or raise "maxHold"',
  shutdown: 'end the work when the signal aborts, or raise "shutdownGrace"',
};

/** Logs a lost lock; of the same names and reason once a minute. `askedAt`: when (monotonic, ms) it was asked for. */
export function logLoss(
  { logger, options: { label } }: Pick<LockBackends, 'logger' | 'options'>,
  error: LockLostError,
  askedAt: number,
): void {
  const { keys, reason, message } = error;
  const ago = Math.round(performance.now() - askedAt);
  const line = `${message}; ${label} asked for it ${ago} ms ago. Remedy: ${REMEDIES[reason]}`;
  logOnce(logger, error, line, `${keys.join(' ')} ${reason}`);
}
