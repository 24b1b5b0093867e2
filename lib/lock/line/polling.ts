import type { AcquireAnswer, Busy } from '../../contracts/lock-requests.js';
import { LockBackendError, LockTimeoutError, type LockLostError } from '../../errors/lock-errors.js';
import { currentInstant } from '../../timing/clock.js';
import { Grant, requestedTtl } from '../grant/grant.js';
import { Lease } from '../grant/lease.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { delaysOf, exponentialBackoff, nextDelay } from '../options/retry-strategy.js';
import type { Caller } from './caller.js';
import type { Contenders } from './lines.js';
import type { QueueingBackend } from './named-backend.js';

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
  contenders: Contenders,
  names: readonly string[],
  options: ResolvedLockOptions,
  caller: Caller,
): Promise<Lease> {
  const delays = delaysOf(options.retry ?? DEFAULT_RETRY);
  for (let attempt = 1; ; attempt++) {
    const outcome = await tryOnce(contenders, names, options, caller).catch((error: unknown) => {
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
  contenders: Contenders,
  names: readonly string[],
  options: ResolvedLockOptions,
  caller: Caller,
  leastToken?: number,
): Promise<Lease | Busy> {
  caller.throwIfCancelled();
  const attempt = { names, ticket: contenders.nextTicket(options.mode === 'read') };
  const { backend } = contenders;
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

/** The error for a caller whose grant came when its lease or its `maxHold` had ended. */
export function grantedTooLate(
  { calls }: QueueingBackend,
  names: readonly string[],
  { ttl, maxHold }: ResolvedLockOptions,
  lost?: LockLostError,
): LockBackendError {
  const ended = lost?.reason === 'maxHold' ? `\`maxHold\` of ${maxHold} ms` : `lease of ${ttl} ms`;
  return new LockBackendError(names, `Lock backend "${calls.backend.name}" granted too late: the ${ended} had ended`);
}
