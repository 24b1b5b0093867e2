import type { QueueAnswer } from '../../contracts/lock-backend.js';
import { LockBackendError, LockTimeoutError } from '../../errors/lock-errors.js';
import type { NamedBackend } from '../backend/named-backend.js';
import type { Grant } from '../lease/grant.js';

/** The owner of a name in an answer of the backend. */
export interface LastOwner {
  readonly owner: string;
  /** When (monotonic, ms) its lease ends. */
  readonly until: number;
}

export function lastOwnerOf({ owner, remaining }: Extract<QueueAnswer, { status: 'busy' }>): LastOwner {
  return { owner, until: performance.now() + remaining };
}

/** What a contender knows of why it cannot serve a caller. */
interface Known {
  /** Why the last request failed; `undefined` once the backend has answered. */
  readonly error: LockBackendError | undefined;
  /** What this process owns. */
  readonly grant: Grant | undefined;
  readonly lastOwner: LastOwner | undefined;
}

/** The error for a caller whose wait is over. */
export function refusalOf(
  { calls }: NamedBackend,
  names: readonly [string],
  waited: number,
  { error, grant, lastOwner }: Known,
): LockTimeoutError | LockBackendError {
  if (error) return error;
  if (grant?.holder) return timedOut(names, waited, grant.ticket, grant.remaining());
  if (lastOwner) return timedOut(names, waited, lastOwner.owner, lastOwner.until - performance.now());
  return calls.unanswered('acquire', names, waited);
}

/** The error for a caller whose grant came when its lease had ended. */
export function grantedTooLate({ calls }: NamedBackend, names: readonly string[], ttl: number): LockBackendError {
  return new LockBackendError(
    names,
    `Lock backend "${calls.backend.name}" granted too late: the lease of ${ttl} ms had ended`,
  );
}

/** The backend answers no owner where the name was free, and other tickets waited before this one. */
function timedOut(names: readonly [string], waited: number, owner: string, remaining: number): LockTimeoutError {
  return new LockTimeoutError(names, { waited, remaining: Math.max(0, remaining), ...(owner && { owner }) });
}
