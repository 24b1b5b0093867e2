import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { UnkeptClasses } from '../../cache/values/unkept-classes.js';
import type { EnqueueRequest } from '../../contracts/lock-queue.js';
import type {
  EnterAnswer,
  EnterRequest,
  IdempotencyRecord,
  KeepResultRequest,
  LeaveAnswer,
} from '../../contracts/primitive-stores.js';
import {
  IdempotencyConflictError,
  IdempotencyResultError,
  IdempotencyRunningError,
} from '../../errors/idempotency-errors.js';
import type { Warnings } from '../../errors/limited-log.js';
import { LockLostError, LockTimeoutError, LockBackendError } from '../../errors/lock-errors.js';
import { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import { IdempotentCallEvents } from '../../events/idempotency-channels.js';
import { HeldLock } from '../../lock/hold/held-lock.js';
import type { Lock } from '../../lock/hold/lock.js';
import type { FirstRequest } from '../../lock/line/caller.js';
import type { LockService } from '../../lock/lock.service.js';
import type { Pending } from '../../contracts/store.js';
import { withTemplate } from '../../options/fixed-options.js';
import { primitiveOption } from '../../options/option-checks.js';
import { backoff } from '../../timing/clock.js';
import type { PrimitiveHome } from '../runtime.js';
import type { IdempotencySettings } from './idempotency-options.js';
import type { RepeatEstimate } from './idempotency.service.js';
import { isThrown, messageOf } from '../../errors/limited-log.js';
import { NothingDone } from './method-begin.js';
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

/** What a call needs of its service. */
interface CallSite {
  readonly home: PrimitiveHome;
  readonly locks: LockService;
  readonly classes: UnkeptClasses;
  readonly logger: Warnings;
  /** How many calls of each lock are under way in this process. */
  readonly underWay: Map<string, number>;
  readonly repeats: RepeatEstimate;
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
 *
 * A store that also keeps the lock does all that comes before the method in one step, and all that comes after it in
 * another one. A call that found the lock taken, or has others of its process beside it, takes step after step. Where
 * repeats are likely, the read still comes alone: many reads share one command.
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
    const { underWay, home } = this.site;
    const name = `${home.source.backend}\n${this.key}`;
    const others = underWay.get(name) ?? 0;
    underWay.set(name, others + 1);
    try {
      return await this.answer(others === 0);
    } catch (error) {
      if (!this.begun && isBackendError(error)) this.events.unavailable(error);
      throw error;
    } finally {
      const left = (underWay.get(name) ?? 1) - 1;
      if (left > 0) underWay.set(name, left);
      else underWay.delete(name);
    }
  }

  private async answer(alone: boolean): Promise<unknown> {
    const entrance = alone ? this.makeEntrance() : undefined;
    const reads = !entrance || this.site.repeats.isLikely(this.settings.template);
    const answer = reads ? await this.read() : undefined;
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
      return await this.site.locks.withLock(
        lockNameOf(this.key),
        options,
        (lock) => this.underLock(lock, entrance),
        entrance,
      );
    } catch (error) {
      if (entrance?.record) return this.answerOf(entrance.record)?.value;
      if (isThrown(error, LockTimeoutError) && !this.entered) return this.answerInsteadOf(error);
      // It was refused before it asked: a result that is kept needs no lock.
      if (entrance && !entrance.ticket) {
        const kept = await this.read();
        if (kept) return kept.value;
      }
      if (entrance && !this.entered && !isBackendError(error)) this.takeBack(entrance);
      // The lock was lost after the store had confirmed the result: no other attempt can begin any more.
      if (isThrown(error, LockLostError) && this.kept) return this.kept.value;
      throw error;
    }
  }

  /** Its first request; `undefined` where the store does not keep the lock, too. */
  private makeEntrance(): Entrance | undefined {
    const { key, settings } = this;
    const { home } = this.site;
    const { results } = home.stores;
    if (!results.enter || settings.signal?.aborted) return undefined;
    const { fingerprint, ttl, lease } = settings;
    return new Entrance(
      { key, fingerprint, ttl: ttl + lease },
      (request) => results.enter!(request),
      (error) => home.calls.failure('begin of an attempt for', key, messageOf(error), error),
    );
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
    if (record.state !== 'running') {
      this.site.repeats.note(this.settings.template, true);
      this.events.repeated(record);
    }
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

  private async underLock(lock: Lock, entrance: Entrance | undefined): Promise<unknown> {
    this.entered = true;
    // A nested hold may raise the token of the lock later.
    const token = lock.fencingToken;
    const begun = entrance?.begun?.token === token ? entrance.begun : await this.begin(token, entrance);
    this.kept = this.answerOf(begun);
    if (this.kept) return this.kept.value;
    if (begun.token !== token) throw lossOf(lock) ?? overtaken(lock, token);
    lock.assertHeld();
    this.begun = true;
    this.site.repeats.note(this.settings.template, false);
    return this.events.attempt(begun, () => this.attempt(lock, begun));
  }

  /** The first request may have begun an attempt under a token which the lock did not keep. */
  private async begin(token: number, entrance: Entrance | undefined): Promise<IdempotencyRecord> {
    const { home } = this.site;
    const { fingerprint, ttl, lease } = this.settings;
    if (entrance?.begun) await this.forget(entrance.begun);
    const request = { key: this.key, token, fingerprint, ttl: ttl + lease };
    return home.calls.run('begin of an attempt for', this.key, () => home.stores.results.begin(request));
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
   * @throws IdempotencyResultError when the store refused each request for a lease, or refuses for good
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
  private async forget(which: { readonly token: number } | { readonly ticket: string }): Promise<void> {
    const { home, logger } = this.site;
    try {
      const request = { key: this.key, ...('token' in which ? { token: which.token } : { ticket: which.ticket }) };
      await home.calls.run('taking back of the attempt for', this.key, () => home.stores.results.forget(request));
    } catch (problem) {
      logger.warn(`The attempt for idempotency key "${this.key}" was not taken back: ${messageOf(problem)}`);
    }
  }

  /**
   * Stores the result and frees the lock in one step, where the store can do that and no other call of this process
   * wants the lock next. Nothing is changed without an answer. `again`: an earlier request may have freed it.
   */
  private leave(lock: Lock, request: KeepResultRequest, again: boolean): Promise<boolean> | undefined {
    const { home } = this.site;
    const { results } = home.stores;
    if (!results.leave || !(lock instanceof HeldLock)) return undefined;
    let answer: LeaveAnswer | undefined;
    let why: unknown = 'no answer in time';
    const ending = lock.endBy(async (names) => {
      try {
        answer = await results.leave!({ ...request, lock: names });
        return again ? { ...answer, resent: true } : answer;
      } catch (error) {
        why = error;
        throw error;
      }
    });
    return ending?.then((outcome) => {
      if (answer && outcome !== 'unconfirmed') return answer.kept;
      throw home.calls.failure('storing of the result of', this.key, messageOf(why), why);
    });
  }

  /** Nobody waits for it: the call was given up, and its first request may have begun an attempt all the same. */
  private takeBack({ ticket, answered, begun }: Entrance): void {
    if (ticket !== undefined && (!answered || begun)) void this.forget({ ticket });
  }

  /** Repeats the request while the lock is held, for one lease at most: the method cannot be undone. */
  private async stored(lock: Lock, request: KeepResultRequest): Promise<boolean> {
    const { home } = this.site;
    const until = performance.now() + this.settings.lease;
    let released = false;
    for (let failures = 0; ; failures++) {
      const leaving = this.leave(lock, request, released);
      released ||= leaving !== undefined;
      try {
        if (leaving) return await leaving;
        return await home.calls.run('storing of the result of', this.key, () => home.stores.results.keep(request));
      } catch (cause) {
        const lost = lossOf(lock);
        // The request without an answer may have freed the lock: then it has kept the result, too.
        if (lost && !leaving) throw lost;
        // A store that goes on refusing is not asked again.
        if (home.calls.goesOnRefusing(cause) || performance.now() >= until) {
          const why = `its result could not be stored (${messageOf(cause)})`;
          throw new IdempotencyResultError(this.key, { why, mayRunAgain: true, cause });
        }
        await sleep(backoff(failures));
      }
    }
  }
}

/** The first request of a call: reads what is kept, takes the lock, and begins an attempt. */
class Entrance implements FirstRequest {
  /** The ticket that asks for the lock; `undefined` until the request is sent. */
  ticket: string | undefined;
  answered = false;
  /** What the call gets instead of the lock. */
  record: IdempotencyRecord | undefined;
  /** The attempt that has begun. */
  begun: IdempotencyRecord | undefined;

  constructor(
    private readonly request: Omit<EnterRequest, 'lock'>,
    private readonly enter: (request: EnterRequest) => Pending<EnterAnswer>,
    readonly failed: (error: LockBackendError) => PrimitiveBackendError,
  ) {}

  async enqueue(lock: EnqueueRequest): Promise<EnterAnswer> {
    this.ticket = lock.ticket;
    const answer = await this.enter({ ...this.request, lock });
    this.answered = true;
    if (answer.status === 'answered') this.record = answer.record;
    else this.begun = answer.begun;
    return answer;
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
