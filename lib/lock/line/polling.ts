import type { AcquireAnswer, Busy } from '../../contracts/lock-backend.js';
import { currentInstant } from '../../timing/clock.js';
import { Grant, requestedTtl } from '../grant/grant.js';
import { Lease } from '../grant/lease.js';
import { LockBackendError, LockTimeoutError, type LockLostError } from '../../errors/lock-errors.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { Caller } from './caller.js';
import type { WaitingPlace } from './line.js';
import { delaysOf, exponentialBackoff, nextDelay } from '../options/retry-strategy.js';
import type { NamedBackend } from './named-backend.js';

const DEFAULT_RETRY = exponentialBackoff();

/** The longest pause (ms) between two tries: a waiter gets no message when a foreign client deletes the key. */
const LONGEST_SLEEP = 1_000;
/** Tries this long (ms) after the holder's lease ends, so that the store has ended it, too. */
const AFTER_LEASE = 2;
/** Makes the last try this long (ms) before the wait ends, so that its answer comes in time. */
const BEFORE_END = 25;

/**
 * Tries until the names are granted or the wait is over.
 *
 * @throws LockTimeoutError when the last answer was "busy"
 * @throws LockBackendError when the last try failed
 */
export async function acquireLease(
  place: WaitingPlace,
  names: readonly string[],
  options: ResolvedLockOptions,
  caller: Caller,
): Promise<Lease> {
  const delays = delaysOf(options.retry ?? DEFAULT_RETRY);
  for (let attempt = 1; ; attempt++) {
    const outcome = await tryOnce(place, names, options, caller).catch((error: unknown) => {
      if (caller.cancelled || !(error instanceof LockBackendError)) throw error;
      return error;
    });
    if (outcome instanceof Lease) return outcome;
    const failed = outcome instanceof LockBackendError;
    const state = { attempt, ...(failed ? { error: outcome } : { remaining: outcome.remaining }) };
    const delay = nextDelay(delays, state);
    if (delay !== undefined) await sleepBeforeRetry(caller, delay, failed ? Infinity : outcome.remaining);
    if (delay !== undefined && caller.remaining() > 0) continue;
    if (failed) throw outcome;
    const { remaining, owner } = outcome;
    throw new LockTimeoutError(names, { waited: caller.waited(), remaining, owner });
  }
}

/**
 * Tries to take all names in one step.
 *
 * @throws LockBackendError when the backend does not answer in time, which may be later than the end of the wait
 */
export async function tryOnce(
  place: WaitingPlace,
  names: readonly string[],
  options: ResolvedLockOptions,
  caller: Caller,
  leastToken?: number,
): Promise<Lease | Busy> {
  caller.throwIfCancelled();
  const attempt = { names, ticket: place.nextTicket(options.mode === 'read') };
  const { backend } = place;
  const { calls, releaser } = backend;
  const limit = caller.limitOf(options.commandTimeout ?? calls.commandTimeout);
  const ttl = requestedTtl(options);
  const sentAt = currentInstant();
  const sent = calls.acquire(attempt, ttl, leastToken);
  let answer: AcquireAnswer | undefined;
  try {
    answer = await caller.until(sent, limit);
  } catch (error) {
    giveBack();
    throw error;
  }
  if (!answer) {
    giveBack();
    throw calls.unanswered('acquire', names, limit);
  }
  if (answer.status === 'busy') {
    caller.meetContention(answer.owner);
    return answer;
  }
  const grant = new Grant(names, attempt.ticket, sentAt, answer.remaining, answer.tokens);
  const granted = new Lease(grant, backend, options, sentAt);
  if (granted.held) {
    backend.watchdog.watch(granted.grant);
    return granted;
  }
  releaser.abandon(attempt, ttl);
  throw grantedTooLate(backend, names, options, granted.lost);

  /** The backend may have granted it: releases it at once, and again if the grant arrives later. */
  function giveBack(): void {
    releaser.abandon(attempt, ttl);
    sent.then(
      ({ status }) => status === 'granted' && releaser.abandon(attempt, ttl),
      () => {},
    );
  }
}

async function sleepBeforeRetry(caller: Caller, delay: number, lease: number): Promise<void> {
  const sleep = Math.min(Math.max(delay, 1), lease + AFTER_LEASE, LONGEST_SLEEP);
  const left = caller.remaining();
  const untilLastTry = left - BEFORE_END;
  if (sleep <= untilLastTry || untilLastTry <= 0) await caller.sleep(sleep);
  else await caller.sleep(untilLastTry);
}

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
