import type { TokenRange } from '../../contracts/lock-requests.js';
import type { PermitRequest } from '../../contracts/primitive-stores.js';
import { PermitLostError, type PermitLostReason } from '../../errors/primitive-errors.js';
import { semaphoreChannels, type SemaphoreCall } from '../../events/semaphore-channels.js';
import { Grant, type GrantHolder } from '../../lock/grant/grant.js';
import { LossSignal } from '../../lock/grant/lease.js';
import { ENOUGH } from '../../lock/grant/watchdog.js';
import { mayEnd, onceRead, type Instant } from '../../timing/clock.js';
import type { Listed } from '../../timing/brief-collections.js';
import { callOf, publishLost, publishReleased } from './permit-events.js';
import type { PermitLine } from './permit-line.js';
import type { PermitSource } from './permit-source.js';
import type { SemaphoreSettings } from './semaphore-options.js';

/** What one call has of a semaphore. Obtained from `SemaphoreService`. It has the shape of a `Lock`. */
export interface Permit extends AsyncDisposable {
  /** The name of the semaphore. */
  readonly key: string;
  /** How many permits it stands for. */
  readonly count: number;
  /**
   * What the store has of this grant. Holders of one process share it if the process passes the permit from one to the
   * next without a request to the store; `fencingToken` distinguishes them.
   */
  readonly owner: string;
  /**
   * A number of its own for each holder. It rises with every grant of the store, which reserves some for the callers
   * that hold the permit one after another. As several callers hold permits at once, a resource cannot refuse all
   * tokens below the highest; use it to tell holders apart.
   */
  readonly fencingToken: number;

  /**
   * Aborted with the `PermitLostError` when the permit is lost, at the latest at its local deadline, whatever the store
   * does. Reading it reads the clock, so that it is right even directly after the process was paused.
   */
  get signal(): AbortSignal;

  /** Whether the permit is still trusted. Reads the clock. */
  get held(): boolean;

  /** Milliseconds of trusted lease left, counted from before the request was sent; 0 once lost or released. */
  remaining(): number;

  /** Throws `PermitLostError` unless the permit is held: call it before a step that must not run without one. */
  assertHeld(): void;

  /**
   * Gives the permit back, or passes it on to a call of this process that waits. A second call settles as the first
   * did. While the store does not confirm, the release is repeated in the background until the lease ends; this call
   * waits only for the first attempt, and with `release: 'background'` for none.
   *
   * @throws PermitLostError when it had been lost before
   */
  release(): Promise<void>;
}

/** What a call that fails wanted, in errors. */
export const ACQUISITION = 'acquisition of a permit of semaphore';

const RELEASED = Promise.resolve();

/** One call's hold of the permits of a turn, with its local deadline. It ends once, by release or by loss. */
export class HeldPermit implements Permit, GrantHolder, Listed {
  readonly fencingToken: number;
  readonly limits = undefined;
  readonly outlastsGrant = false;
  /** It has no part in the events of locks. */
  readonly call = undefined;
  /** Among those that are held. */
  index = -1;
  /** When (monotonic, ms) it was granted, for its events; `undefined` if nobody listened then. */
  grantedAt: number | undefined = undefined;
  /** Why it was lost, as far as this process has noticed. */
  lostError: PermitLostError | undefined = undefined;
  private lossSignal: LossSignal | undefined = undefined;
  private ended = false;
  /** Whether it was released, or lost as far as this process has noticed. */
  isOver = false;
  /** Whether it keeps the process alive, as the wait for it did. */
  private awake = true;
  private releasing: Promise<void> | undefined = undefined;

  constructor(
    readonly turn: PermitTurn,
    readonly options: SemaphoreSettings,
    private readonly source: PermitSource,
    /** The call that took it, if that has published an event. */
    private recorded: SemaphoreCall | undefined,
  ) {
    this.fencingToken = turn.takeToken();
    turn.holder = this;
  }

  get key(): string {
    return this.turn.request.name;
  }

  /** The call in the events of semaphores. */
  get taker(): SemaphoreCall {
    return (this.recorded ??= callOf(this.source.eventSource, this.key, this.options));
  }

  get count(): number {
    return this.turn.request.count;
  }

  get owner(): string {
    return this.turn.request.ticket;
  }

  get held(): boolean {
    return this.remaining() > 0;
  }

  get isReleased(): boolean {
    return this.ended;
  }

  remaining(): number {
    if (this.isOver) return 0;
    const left = this.turn.remaining();
    if (left > 0) return left;
    if (!this.turn.renewing) this.lose('expired');
    return 0;
  }

  get signal(): AbortSignal {
    this.remaining();
    if (!this.lossSignal) {
      this.lossSignal = new LossSignal();
      if (this.lostError) this.lossSignal.abort(this.lostError);
      else if (this.ended) this.lossSignal.settle();
    }
    return this.lossSignal.signal;
  }

  assertHeld(): void {
    if (this.held) return;
    throw this.lost ?? this.lossOf(this.ended ? 'released' : 'expired');
  }

  /** Why it was lost; `undefined` while it is held and after it was released in time. Reads the clock. */
  get lost(): PermitLostError | undefined {
    this.expire();
    return this.lostError;
  }

  /** As `lost`, after reading the answers that arrived while the event loop was blocked: one may renew the lease. */
  async lostOnceRead(): Promise<PermitLostError | undefined> {
    if (!this.held && !this.isOver) await new Promise<void>(onceRead);
    return this.lost;
  }

  /** Ends a permit whose deadline has passed, without waiting for the answer to a renewal. */
  expire(): void {
    if (!this.isOver && this.remaining() === 0) this.lose('expired');
  }

  lose(reason: PermitLostReason): void {
    if (this.isOver) return;
    this.letEnd();
    this.isOver = true;
    this.lostError = this.lossOf(reason);
    this.source.permitLost(this);
    publishLost(this, reason);
    this.lossSignal?.abort(this.lostError);
  }

  async release(): Promise<void> {
    this.releasing ??= this.releaseOrThrow();
    await this.releasing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.releasing) await this.release();
  }

  private async releaseOrThrow(): Promise<void> {
    await this.finish(await this.lostOnceRead(), false);
  }

  /** No caller waits for the answer to the release: a loss that it shows is logged and published as any other. */
  private settleNow(lost: PermitLostError | undefined, answered: Promise<void>): Promise<void> {
    answered.catch((error: PermitLostError) => {
      if (error !== lost) this.source.lostUnseen(error);
    });
    return lost ? Promise.reject(lost) : RELEASED;
  }

  /**
   * Ends the hold; rejects if it was `lost`, or had been taken away while the lease was trusted. After a body, the
   * permit may stay with the process, and the body may have released it.
   */
  finish(lost: PermitLostError | undefined, afterBody = true): Promise<void> {
    if (afterBody && this.releasing) return RELEASED;
    this.ended = this.isOver = true;
    if (this.awake) mayEnd();
    this.lossSignal?.settle();
    const endedAt = performance.now();
    const answered = new Promise<void>((resolve, reject) => {
      this.source.takeBack(this, afterBody, (answer) => {
        if (lost) return reject(lost);
        // After the deadline, "gone" says nothing: the lease had ended.
        const gone = answer !== undefined && !answer.live && !answer.resent;
        const taken = gone && this.turn.remaining() > 0;
        if (taken) publishLost(this, 'taken', endedAt);
        else if (!this.lostError && semaphoreChannels.released.hasSubscribers) publishReleased(this, endedAt);
        if (taken) reject(this.lossOf('taken'));
        else resolve();
      });
    });
    this.releasing = this.options.release === 'background' ? this.settleNow(lost, answered) : answered;
    return this.releasing;
  }

  /** No longer keeps the process alive. Until then it does: its end may be all that its body waits for. */
  letEnd(): void {
    if (this.awake) mayEnd();
    this.awake = false;
  }

  private lossOf(reason: PermitLostReason): PermitLostError {
    const { fencingToken, owner } = this;
    return new PermitLostError(this.key, { reason, fencingToken, owner });
  }
}

/** How long (ms) a turn lasts at most: then the store decides again who is next, over all processes. */
const LONGEST_TURN = 10;
/** With less than this share of a grant left, nobody enters before it is renewed. */
const LEAST_SHARE = 0.5;

/**
 * Permits that the store granted to this process under one ticket. Callers hold them one after another without a
 * request, each with a fencing token of its own, until the turn ends; then they go back to the store.
 */
export class PermitTurn extends Grant {
  private readonly endsAt = performance.now() + LONGEST_TURN;

  constructor(
    readonly request: PermitRequest,
    /** The calls among which it is passed on. */
    readonly line: PermitLine,
    sentAt: Instant,
    /** As much (ms) of the lease as is believed. */
    remaining: number,
    tokens: TokenRange,
    /** Whether its ticket had to wait in the queue at the store. */
    readonly fromQueue: boolean,
  ) {
    super([request.name], request.ticket, sentAt, remaining, tokens, line.settings.ttl);
  }

  /** Whether the permits, which a caller had, were given back or lost: nobody watches them any more. */
  get over(): boolean {
    return this.index < 0;
  }

  /**
   * Whether enough of the lease is left for a caller to enter. It takes more where the renewal that the start of a
   * holder sends may not leave this process.
   */
  get isEnough(): boolean {
    const remaining = this.remaining();
    if (remaining < LEAST_SHARE * this.granted) return false;
    return this.line.source.writesAtOnce || remaining >= ENOUGH * this.line.settings.ttl;
  }

  /** Whether another caller may hold the permits before they go back. */
  get goesOn(): boolean {
    return !this.over && this.tokens > 0 && performance.now() < this.endsAt && this.isEnough;
  }
}
