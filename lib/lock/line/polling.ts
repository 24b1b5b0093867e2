import type { AcquireAnswer, Busy, TokenRange } from '../../contracts/lock-requests.js';
import { isThrown } from '../../errors/limited-log.js';
import { LockBackendError, LockTimeoutError, type LockLostError } from '../../errors/lock-errors.js';
import { currentInstant } from '../../timing/clock.js';
import type { Grant } from '../grant/grant.js';
import { Lease } from '../grant/lease.js';
import type { BackendCalls, GrantedLease } from '../grant/store.js';
import type { LockMode, ResolvedLockOptions } from '../options/lock-options.js';
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
      if (caller.cancellation || !isThrown(error, LockBackendError)) throw error;
      return error;
    });
    if (outcome instanceof Lease) return outcome;
    const failed = outcome instanceof LockBackendError;
    if (failed && contenders.backend.calls.goesOnRefusing(outcome)) throw outcome;
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
 * Tries to take all names in one step. One that this process releases in the background counts as released.
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
  const { calls, releaser } = contenders.backend;
  contenders.handBack(names);
  const released = releaser.inFlight > 0 ? releaser.releasing(names) : undefined;
  if (!released) return askOnce(contenders, names, options, caller, leastToken);
  if (calls.backend.traits.writesAtOnce) {
    const outcome = await askOnce(contenders, names, options, caller, leastToken);
    if (outcome instanceof Lease) return outcome;
  }
  await caller.until(released, caller.limitOf(calls));
  return askOnce(contenders, names, options, caller, leastToken);
}

async function askOnce(
  contenders: Contenders,
  names: readonly string[],
  options: ResolvedLockOptions,
  caller: Caller,
  leastToken?: number,
): Promise<Lease | Busy> {
  caller.throwIfCancelled();
  const attempt = { names, ticket: contenders.nextTicket() };
  const { backend } = contenders;
  const { calls, releaser } = backend;
  const limit = caller.limitOf(calls);
  const sentAt = currentInstant();
  const { mode, lease: ttl } = options;
  const sent = calls.acquire(attempt, { mode, ttl, leastToken });
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
  const grant = granted(answer);
  if (grant.tokens === 0) await mintTokens(calls, grant, mode, caller).catch(refuse);
  const lease = new Lease(grant, backend, options, sentAt);
  if (lease.held) {
    backend.watchdog.watch(lease.grant);
    return lease;
  }
  releaser.abandon(attempt, ttl);
  throw grantedTooLate(backend, names, options, lease.lost);

  function granted(taken: GrantedLease): Grant {
    try {
      return calls.granted(attempt, { base: sentAt, asked: ttl, mode }, taken);
    } catch (error) {
      return refuse(error);
    }
  }

  function refuse(error: unknown): never {
    giveBack();
    throw error;
  }

  /** The backend may have granted it: releases it at once, and again if the grant arrives later. */
  function giveBack(): void {
    releaser.abandon(attempt, ttl);
    sent.then(
      ({ status }) => status === 'granted' && releaser.abandon(attempt, ttl),
      () => releaser.abandonLate(attempt, ttl),
    );
  }
}

/**
 * Gets tokens for a grant of names whose own tokens this process has seen before. Of several names each has a counter;
 * the hold gets the largest token, and the others are raised above it.
 *
 * @throws LockBackendError when the backend does not confirm it
 */
async function mintTokens(calls: BackendCalls, grant: Grant, mode: LockMode, caller: Caller): Promise<void> {
  const { names, ticket } = grant;
  const mint = (name: string, least: number) =>
    new Promise<TokenRange>((resolve, reject) => {
      const answered = (tokens: TokenRange | null) => {
        if (tokens) resolve(tokens);
        else reject(calls.failure('acquire', names, 'the names were lost before they had a fencing token'));
      };
      calls.mint([name], ticket, least, answered, reject, caller.limitOf(calls), mode);
    });
  const minted = await Promise.all(names.map((name) => mint(name, 0)));
  const first = Math.max(...minted.map((tokens) => tokens.first));
  const behind = names.filter((_, index) => (minted[index] as TokenRange).first < first);
  await Promise.all(behind.map((name) => mint(name, first + (mode === 'read' ? 0 : 1))));
  grant.addTokens({ first, count: 1 });
}

async function sleepBeforeRetry(caller: Caller, delay: number, lease: number): Promise<void> {
  const sleep = Math.min(Math.max(delay, 1), Math.max(lease, 0) + AFTER_LEASE, LONGEST_SLEEP);
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
