import type { QueueAnswer } from '../../contracts/lock-backend.js';
import type { Grant } from '../lease/grant.js';
import { LockTimeoutError, type LockBackendError } from '../../errors/lock-errors.js';
import type { LockQueues } from './lock-queues.js';

/** Who had the name when the backend was last asked. */
export interface LastOwner {
  readonly owner: string;
  /** When (monotonic, ms) its lease ends. */
  readonly until: number;
}

export function lastOwnerOf({ owner, remaining }: Extract<QueueAnswer, { status: 'busy' }>): LastOwner {
  return { owner, until: performance.now() + remaining };
}

/** What is known of why a name is not to be had. */
interface Known {
  /** Why the last request failed; absent once one was answered. */
  readonly error: LockBackendError | undefined;
  /** What this process owns. */
  readonly grant: Grant | undefined;
  readonly busy: LastOwner | undefined;
}

/** The error for a caller that would not or cannot wait any longer. */
export function refusalOf(
  name: string,
  waited: number,
  { error, grant, busy }: Known,
  queues: LockQueues,
): LockTimeoutError | LockBackendError {
  if (error) return error;
  const holder = grant?.holder;
  if (holder) return timedOut(name, waited, holder.grant.ticket, holder.grant.remaining());
  if (busy) return timedOut(name, waited, busy.owner, busy.until - performance.now());
  return queues.unanswered(name, waited);
}

/** Without an owner the name was free, and others were before. */
function timedOut(name: string, waited: number, owner: string, remaining: number): LockTimeoutError {
  return new LockTimeoutError([name], { waited, remaining: Math.max(0, remaining), ...(owner && { owner }) });
}
