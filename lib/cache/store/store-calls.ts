import { setTimeout as sleep } from 'node:timers/promises';
import { BoundedCall, BoundedCalls, CircuitBreaker, diagnosisOf } from '../../calls/bounded-call.js';
import {
  checked,
  isBoolean,
  isNumber,
  isText,
  listOf,
  orNull,
  withParts,
  type Form,
  type Forms,
} from '../../calls/checked-answers.js';
import type { CacheStore } from '../../contracts/cache-store.js';
import type { Pending, StoreContext } from '../../contracts/store.js';
import { CacheBackendError } from '../../errors/cache-errors.js';
import type { Warnings } from '../../errors/limited-log.js';
import { cacheChannels } from '../../events/cache-channels.js';
import { Timeouts } from '../../timing/clock.js';
import { publishBreaker } from './cache-stats.js';

interface StoreCallsOptions {
  readonly commandTimeout: number;
  readonly breaker: { readonly errors: number; readonly open: number };
}

/**
 * The calls to the store. Each fails after `commandTimeout` without an answer, whatever the client library does, and at
 * once while the circuit breaker is open. The store may still carry out a call that has failed here.
 */
export class StoreCalls extends BoundedCalls<string, CacheBackendError> {
  readonly breaker: CircuitBreaker;
  readonly timeouts = new Timeouts();
  /** The time limits: standstills of the process do not count, so an answer that has arrived is always read. */
  readonly limits = new Timeouts({ countsStandstills: false });
  /** Its answers have the form that the contract gives them. */
  readonly store: CacheStore;
  private readonly onBack: (() => void)[] = [];
  /** Whether the application has ended: nothing is sent any more. */
  stopped = false;

  constructor(
    store: CacheStore,
    readonly options: StoreCallsOptions,
    warnings: Warnings,
  ) {
    super(store);
    const tell = (call: string, why: string) =>
      warnings.warn(`Cache store "${store.name}": ${call} failed: ${why}`, `answers to ${call}`);
    this.store = checked(store, ANSWERS, tell);
    this.breaker = new CircuitBreaker(
      options.breaker,
      () => store.ping(),
      () => {
        publishBreaker(cacheChannels.breakerOpened, this.breaker.opened);
        const why = store.diagnose?.()?.message;
        warnings.warn(`Redis does not answer: the cache goes on without it until it answers${why ? ` (${why})` : ''}`);
        this.breaker.interruptAll('Redis does not answer');
      },
      () => {
        publishBreaker(cacheChannels.breakerClosed, this.breaker.opened);
        this.onBack.forEach((listener) => listener());
      },
    );
  }

  /** Calls the listener whenever the breaker closes. */
  whenBack(listener: () => void): void {
    this.onBack.push(listener);
  }

  /**
   * Calls `answered` or `failed` once, within `commandTimeout` from the send. A later answer goes to `late`: the call
   * may have changed values.
   */
  send<T>(
    operation: string,
    key: string,
    call: () => Pending<T>,
    answered: (answer: T) => void,
    failed: (error: CacheBackendError) => void,
    late?: (answer: T) => void,
  ): void {
    if (this.stopped) return failed(this.failure(operation, key, 'the application has ended'));
    if (this.breaker.isOpen) return failed(this.failure(operation, key, 'the circuit breaker is open'));
    const { commandTimeout } = this.options;
    void new BoundedCall(this, operation, key, commandTimeout, answered, failed, late, this.begin(call));
  }

  run<T>(operation: string, key: string, call: () => Pending<T>, late?: (answer: T) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      this.send(operation, key, call, resolve, reject, late);
    });
  }

  /**
   * Runs work of many commands, for any time as long as the store replies to a PING within `commandTimeout`. After a
   * failure here, the work may still go on.
   */
  async runLong<T>(operation: string, work: () => Promise<T>): Promise<T> {
    await this.run(operation, '', () => this.store.ping());
    const result = work();
    const settled = result.then(
      () => true,
      () => true,
    );
    const pause = () => sleep(this.options.commandTimeout, false, { ref: false });
    while (!(await Promise.race([settled, pause()]))) await this.run(operation, '', () => this.store.ping());
    return result;
  }

  /**
   * The check at the start of the module, for which all calls wait.
   *
   * @throws CacheBackendError when the store cannot serve, or answers nothing within the time of a few calls
   */
  start(request: StoreContext): Promise<void> {
    const check = this.check(request);
    this.checks.add(check);
    return check;
  }

  /** `key` is '' if the operation concerns no key. */
  failure(operation: string, key: string, why: string, cause?: unknown): CacheBackendError {
    const about = key === '' ? '' : ` of "${key}"`;
    return new CacheBackendError(`Cache: ${operation}${about} failed: ${why}`, key === '' ? [] : [key], cause);
  }

  /** Sends every call from now on, even after repeated failures. */
  insist(): void {
    this.breaker.stop();
  }

  stop(): void {
    this.stopped = true;
    this.breaker.stop();
    this.breaker.interruptAll('the application has ended');
  }

  private async check(request: StoreContext): Promise<void> {
    const { store } = this;
    const limit = START_CALLS * request.commandTimeout;
    const tooLate = sleep(limit, undefined, { ref: false }).then(() => {
      throw diagnosisOf(store) ?? new Error(`no answer within ${limit} ms`);
    });
    try {
      await Promise.race([store.start?.(request) ?? store.ping(), tooLate]);
    } catch (error) {
      throw this.explain('start', '', error);
    }
  }
}

const isBytes: Form = (answer) => Buffer.isBuffer(answer);
const isStatus: Form = (answer) => isText(answer) && /^(hit|leased|busy|barrier)$/.test(String(answer));

const isNumberOrNull = orNull(isNumber);
const isBytesOrNull = orNull(isBytes);
const isListOfTexts = listOf(isText);
const isVersion = withParts({ version: isNumber, begun: isBoolean });
const isSoftVersion = withParts({ version: isNumber, least: isNumber });
const isStoredValue = withParts({ head: isBytes, bytes: isNumber, ttl: isNumber });
const isLease = withParts({ status: isStatus });
const isLeased = withParts({ at: isNumber });
const isBusy = withParts({ remaining: isNumber });

function isLeaseAnswer(answer: unknown): boolean {
  if (!isLease(answer)) return false;
  const { status } = answer as { status: string };
  return status === 'leased' ? isLeased(answer) : status !== 'busy' || isBusy(answer);
}

const sameList = (request: unknown) => request;

const ANSWERS: Forms = {
  read: isBytesOrNull,
  lease: isLeaseAnswer,
  readOrLease: (answer) => isBytes(answer) || isLeaseAnswer(answer),
  commit: isBoolean,
  renew: isBoolean,
  invalidate: isBoolean,
  take: isBytesOrNull,
  renewBarrier: isBoolean,
  set: (answer) => answer === 'late' || isBoolean(answer),
  increment: isNumber,
  expire: isBoolean,
  ttl: isNumberOrNull,
  inspect: withParts({ value: orNull(isStoredValue), lease: isNumberOrNull, barrier: isBoolean }),
  beginTags: listOf(isVersion, sameList),
  readTags: listOf((state) => isNumberOrNull(state) || isSoftVersion(state), sameList),
  lastTagInvalidation: isNumberOrNull,
  deleteMatching: isNumber,
  sets: { add: isNumber, remove: isNumber, has: isBoolean, members: isListOfTexts },
  expiringSets: { add: isNumber, remove: isNumber, has: isBoolean, members: isListOfTexts, size: isNumber },
  bits: {
    has: orNull(listOf(isBoolean, (request) => (request as { lists: unknown }).lists)),
    beginRebuild: isBoolean,
    addToRebuild: isBoolean,
    finishRebuild: isBoolean,
  },
  deletions: { claim: withParts({ names: isListOfTexts, next: isNumberOrNull }) },
};

/** How many calls in a row a store may make at its start. */
const START_CALLS = 5;

/** How many keys of one call are read or written at once. */
const MOST_AT_ONCE = 512;

/**
 * Calls `call` for each item at once, in order. The calls after the first batch have to await `go`, the end of the
 * batch before, so that the store does not get more at one time than it can answer. Resolves when all have settled.
 */
export function inBatches<T, R>(
  all: readonly T[],
  call: (each: T, go: Promise<unknown> | undefined) => Promise<R>,
): Promise<PromiseSettledResult<R>[]> {
  const results: Promise<R>[] = [];
  let go: Promise<unknown> | undefined;
  for (let first = 0; first < all.length; first += MOST_AT_ONCE) {
    const gate = go;
    const batch = all.slice(first, first + MOST_AT_ONCE).map((each) => call(each, gate));
    go = Promise.allSettled(batch);
    results.push(...batch);
  }
  return Promise.allSettled(results);
}

/** Throws the first error, once all have settled, so that no call goes on unobserved. */
export function valuesOf<T>(results: readonly PromiseSettledResult<T>[]): T[] {
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}
