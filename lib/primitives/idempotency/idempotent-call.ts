import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { UnkeptClasses } from '../../cache/values/unkept-classes.js';
import type { IdempotencyRecord, KeepResultRequest } from '../../contracts/primitive-stores.js';
import {
  IdempotencyConflictError,
  IdempotencyResultError,
  IdempotencyRunningError,
} from '../../errors/idempotency-errors.js';
import type { Warnings } from '../../errors/limited-log.js';
import { LockLostError, LockTimeoutError, LockBackendError } from '../../errors/lock-errors.js';
import { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import { idempotencyChannels, type IdempotencyEvent } from '../../events/idempotency-channels.js';
import type { LockSource } from '../../events/lock-channels.js';
import type { Lock } from '../../lock/hold/lock.js';
import type { LockService } from '../../lock/lock.service.js';
import { withTemplate } from '../../options/fixed-options.js';
import { primitiveOption } from '../../options/option-checks.js';
import { backoff } from '../../timing/clock.js';
import type { PrimitiveHome } from '../runtime.js';
import type { IdempotencySettings } from './idempotency-options.js';
import { messageOf } from '../../errors/limited-log.js';
import { answerOf, errorResultOf, resultOf, unkeptError, type Answer, type Result } from './results.js';

/** One run of an idempotent method. */
export interface IdempotencyAttempt {
  readonly key: string;
  /**
   * Counts the attempts with this key that have begun, from 1. Above 1, an earlier one died, failed, lost its lock, or
   * could not store its result: what it did may have taken effect, in part or as a whole.
   */
  readonly attempt: number;
  /**
   * The lock around the run: its `signal` is aborted, and `assertHeld()` throws, once another attempt may begin; its
   * `fencingToken` rises with each attempt.
   */
  readonly lock: Lock;
}

const attempts = new AsyncLocalStorage<IdempotencyAttempt>();

/** The innermost attempt around the running code. */
export function currentAttempt(): IdempotencyAttempt | undefined {
  return attempts.getStore();
}

/**
 * @internal What a body returns whose work has not begun, such as that of a request which a pipe has refused: nothing
 * is kept, and the next call with the key is a first one.
 */
export class NothingDone {
  constructor(
    /** What the caller gets: returns it or throws it. */
    readonly outcome: () => unknown,
  ) {}
}

/** What a call needs of its service. */
interface CallSite {
  readonly home: PrimitiveHome;
  readonly locks: LockService;
  readonly classes: UnkeptClasses;
  readonly logger: Warnings;
}

interface CallSettings extends IdempotencySettings {
  readonly wait: number;
  readonly lease: number;
  /** A digest of the request, or empty. */
  readonly fingerprint: string;
}

/** The bounds of `retryAfter`, in ms. */
const [SHORTEST_RETRY, LONGEST_RETRY] = [1_000, 30_000];

/**
 * One call of an idempotent method.
 *
 * It reads the result. If there is none, it takes the lock of the key and notes in the store, with the token of the
 * lock, that an attempt begins; the store answers the result if there is one by now. Then it runs the method and stores
 * the result. The store refuses a result once an attempt with a larger token has begun, so it keeps one result at most,
 * and never that of a holder whose lock had gone to another one.
 */
export class IdempotentCall {
  /** Whether the lock was granted: a `LockTimeoutError` is then one of the method. */
  private entered = false;
  /** Whether the method was called. */
  private begun = false;
  private readonly events: IdempotentCallEvents;
  /** The value, once the store has confirmed that it is kept, whether by this call or by another one. */
  private kept: Answer | undefined;

  constructor(
    private readonly site: CallSite,
    private readonly key: string,
    private readonly settings: CallSettings,
    private readonly body: (attempt: IdempotencyAttempt) => Promise<unknown>,
  ) {
    this.events = new IdempotentCallEvents(key, settings.template, site.home.source);
  }

  async run(): Promise<unknown> {
    try {
      return await this.answer();
    } catch (error) {
      if (!this.begun && isBackendError(error)) this.events.unavailable(error);
      throw error;
    }
  }

  private async answer(): Promise<unknown> {
    const answer = await this.read();
    if (answer) return answer.value;
    const { lease: ttl, wait, onRunning, signal, backend, template } = this.settings;
    const given = {
      ttl,
      wait: onRunning === 'throw' ? 0 : wait,
      renew: true,
      maxHold: Infinity,
      minHold: 0,
      linger: 0,
      reentrant: false,
      ...(signal && { signal }),
      ...(backend !== undefined && { backend }),
    };
    const options = template === undefined ? given : withTemplate(given, lockNameOf(template));
    try {
      return await this.site.locks.withLock(lockNameOf(this.key), options, (lock) => this.underLock(lock));
    } catch (error) {
      if (error instanceof LockTimeoutError && !this.entered) return this.answerInsteadOf(error);
      // The lock was lost after the store had confirmed the result: no other attempt can begin any more.
      if (error instanceof LockLostError && this.kept) return this.kept.value;
      throw error;
    }
  }

  private async read(): Promise<Answer | undefined> {
    const { home } = this.site;
    const record = await home.calls.run('read of the result of', this.key, () => home.stores.results.read(this.key));
    return record ? this.answerOf(record) : undefined;
  }

  /** @throws IdempotencyConflictError, or what `answerOf` of the results throws */
  private answerOf(record: IdempotencyRecord): Answer | undefined {
    const { fingerprint } = this.settings;
    if (fingerprint !== '' && record.fingerprint !== '' && record.fingerprint !== fingerprint) {
      this.events.conflict();
      throw new IdempotencyConflictError(this.key);
    }
    if (record.state !== 'running') this.events.repeated(record);
    return answerOf(this.key, record, this.settings);
  }

  /** The other call may have ended since the lock was found busy. */
  private async answerInsteadOf(busy: LockTimeoutError): Promise<unknown> {
    const answer = await this.read();
    if (answer) return answer.value;
    const { waited, remaining } = busy;
    this.events.busy(waited);
    const retryAfter = Math.min(LONGEST_RETRY, Math.max(SHORTEST_RETRY, Math.min(waited, remaining)));
    const inside = currentAttempt()?.key === this.key;
    throw new IdempotencyRunningError(this.key, { waited, retryAfter, inside, cause: busy });
  }

  private async underLock(lock: Lock): Promise<unknown> {
    this.entered = true;
    const { home } = this.site;
    const { fingerprint, ttl, lease } = this.settings;
    // A nested hold may raise the token of the lock later.
    const request = { key: this.key, token: lock.fencingToken, fingerprint, ttl: ttl + lease };
    const begun = await home.calls.run('begin of an attempt for', this.key, () => home.stores.results.begin(request));
    if (begun.token !== request.token) {
      this.kept = this.answerOf(begun);
      if (this.kept) return this.kept.value;
      throw lossOf(lock) ?? overtaken(lock, request.token);
    }
    lock.assertHeld();
    this.begun = true;
    return this.events.attempt(begun, () => this.attempt(lock, begun));
  }

  private async attempt(lock: Lock, begun: IdempotencyRecord): Promise<unknown> {
    let value: unknown;
    try {
      const attempt = { key: this.key, attempt: begun.attempt, lock };
      value = await attempts.run(attempt, this.body, attempt);
    } catch (error) {
      // Once the lock is lost, the error may be a consequence of that.
      if (!lossOf(lock)) await this.keepError(lock, begun, error);
      throw error;
    }
    if (value instanceof NothingDone) {
      await this.forget(begun);
      return value.outcome();
    }
    const result = resultOf(this.key, value, this.settings, this.site.classes);
    await this.keep(lock, begun, result);
    if (result.state === 'unkept') throw unkeptError(this.key, result.payload);
    this.kept = { value };
    return value;
  }

  /**
   * Stores the result also if the lock is lost, since the method has run: the store takes it unless another attempt has
   * begun.
   *
   * @throws LockLostError when another attempt has begun, or the lock is lost and the store does not answer
   * @throws IdempotencyResultError when the store refused each request for a lease
   */
  private async keep(lock: Lock, { token, attempt, fingerprint }: IdempotencyRecord, result: Result): Promise<void> {
    const lost = lossOf(lock);
    const record = { ...result, token, attempt, fingerprint };
    const kept = await this.stored(lock, {
      key: this.key,
      record,
      ttl: this.settings.ttl,
      evenIfForgotten: lost === undefined,
    });
    if (!kept) throw lost ?? lossOf(lock) ?? overtaken(lock, token);
  }

  /** Never throws: the caller gets the error of the method. If it is not kept, the next call may run the method. */
  private async keepError(lock: Lock, begun: IdempotencyRecord, error: unknown): Promise<void> {
    try {
      const { keepErrors } = this.settings;
      if (!primitiveOption.decision('keepErrors', keepErrors(error))) return;
      await this.keep(lock, begun, errorResultOf(error, this.settings));
    } catch (problem) {
      this.site.logger.warn(`The error of idempotency key "${this.key}" was not kept: ${messageOf(problem)}`);
    }
  }

  /** Never throws: a record that stays makes the next call with the key a second attempt, which runs as well. */
  private async forget({ token }: IdempotencyRecord): Promise<void> {
    const { home, logger } = this.site;
    try {
      const request = { key: this.key, token };
      await home.calls.run('taking back of the attempt for', this.key, () => home.stores.results.forget(request));
    } catch (problem) {
      logger.warn(`The attempt for idempotency key "${this.key}" was not taken back: ${messageOf(problem)}`);
    }
  }

  /** Repeats the request while the lock is held, for one lease at most: the method cannot be undone. */
  private async stored(lock: Lock, request: KeepResultRequest): Promise<boolean> {
    const { home } = this.site;
    const until = performance.now() + this.settings.lease;
    for (let failures = 0; ; failures++) {
      try {
        return await home.calls.run('storing of the result of', this.key, () => home.stores.results.keep(request));
      } catch (cause) {
        const lost = lossOf(lock);
        if (lost) throw lost;
        if (performance.now() >= until) {
          const why = `its result could not be stored (${messageOf(cause)})`;
          throw new IdempotencyResultError(this.key, { why, mayRunAgain: true, cause });
        }
        await sleep(backoff(failures));
      }
    }
  }
}

/** The name of the lock of a key, and the template of the names of the locks of a key template. */
function lockNameOf(key: string): string {
  return `idempotency:${key}`;
}

/** Why the lock is no longer held; `undefined` while it is. */
function lossOf({ signal }: Lock): unknown {
  return signal.aborted ? signal.reason : undefined;
}

/** The store has seen an attempt of a later holder, of which this process does not know yet. */
function overtaken({ keys, owner }: Lock, fencingToken: number): LockLostError {
  return new LockLostError(keys, { reason: 'taken', fencingToken, owner });
}

function isBackendError(error: unknown): boolean {
  return error instanceof PrimitiveBackendError || error instanceof LockBackendError;
}

/** Publishes what happens to one call, to those who listen. */
class IdempotentCallEvents {
  constructor(
    private readonly key: string,
    private readonly template: string | undefined,
    private readonly source: LockSource,
  ) {}

  repeated({ attempt }: IdempotencyRecord): void {
    const { repeated } = idempotencyChannels;
    if (repeated.hasSubscribers) repeated.publish({ ...this.event, attempt });
  }

  conflict(): void {
    const { conflict } = idempotencyChannels;
    if (conflict.hasSubscribers) conflict.publish(this.event);
  }

  busy(waited: number): void {
    const { busy } = idempotencyChannels;
    if (busy.hasSubscribers) busy.publish({ ...this.event, waited });
  }

  unavailable(error: unknown): void {
    const { unavailable } = idempotencyChannels;
    if (unavailable.hasSubscribers) unavailable.publish({ ...this.event, error });
  }

  /** Publishes how the attempt ends. */
  attempt({ attempt }: IdempotencyRecord, run: () => Promise<unknown>): Promise<unknown> {
    const { ran, failed } = idempotencyChannels;
    return ran.hasSubscribers || failed.hasSubscribers ? this.observed(attempt, run) : run();
  }

  private async observed(attempt: number, run: () => Promise<unknown>): Promise<unknown> {
    const { ran, failed } = idempotencyChannels;
    const begunAt = performance.now();
    try {
      const value = await run();
      ran.publish({ ...this.event, attempt, took: performance.now() - begunAt });
      return value;
    } catch (error) {
      failed.publish({ ...this.event, attempt, took: performance.now() - begunAt, error });
      throw error;
    }
  }

  private get event(): IdempotencyEvent {
    const { key, template, source } = this;
    return { key, template, backend: source.backend, label: source.label };
  }
}
