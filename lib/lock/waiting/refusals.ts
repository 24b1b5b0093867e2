import type { Busy } from '../../contracts/lock-backend.js';
import { LockBackendError, LockTimeoutError, type LockLostError } from '../../errors/lock-errors.js';
import type { NamedBackend } from '../backend/named-backend.js';
import type { Grant } from '../lease/grant.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';

/** The owner of a name in an answer of the backend. */
export interface LastOwner {
  readonly owner: string;
  /** When (monotonic, ms) its lease ends. */
  readonly until: number;
}

export function lastOwnerOf({ owner, remaining }: Busy): LastOwner {
  return { owner, until: performance.now() + remaining };
}

/** Why a contender cannot serve a caller, as far as it knows. */
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

/** The error for a caller whose grant came when its lease or its `maxHold` had ended. */
export function grantedTooLate(
  { calls }: NamedBackend,
  names: readonly string[],
  { ttl, maxHold }: ResolvedLockOptions,
  lost?: LockLostError,
): LockBackendError {
  const ended = lost?.reason === 'maxHold' ? `\`maxHold\` of ${maxHold} ms` : `lease of ${ttl} ms`;
  return new LockBackendError(names, `Lock backend "${calls.backend.name}" granted too late: the ${ended} had ended`);
}

/** The answer names no owner if the name was free and other tickets waited ahead of this one. */
function timedOut(names: readonly [string], waited: number, owner: string, remaining: number): LockTimeoutError {
  return new LockTimeoutError(names, { waited, remaining: Math.max(0, remaining), ...(owner && { owner }) });
}
