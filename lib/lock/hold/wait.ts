import type { QueueingBackend } from '../backend/queueing-backend.js';
import { LockBackendError } from '../../errors/lock-errors.js';
import type { Place } from '../../timing/linked-list.js';
import type { Caller } from '../waiting/caller.js';

/** A call of this instance that waits for its names. */
export interface Wait {
  place?: Place<Wait>;
  readonly backend: QueueingBackend;
  readonly names: readonly string[];
  /**
   * Whether the caller is inside of a hold. While the application shuts down, that hold can end only if the call ends.
   */
  readonly inside: boolean;
  readonly caller: Caller;
}

export function shuttingDown(names: readonly string[]): LockBackendError {
  return new LockBackendError(names, 'The application is shutting down: no new lock is taken');
}
