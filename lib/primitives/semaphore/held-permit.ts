import { AsyncResource } from 'node:async_hooks';
import type { PermitRequest } from '../../contracts/primitive-stores.js';
import { PermitLostError, type PermitLostReason } from '../../errors/primitive-errors.js';
import { semaphoreChannels, type SemaphoreCall } from '../../events/semaphore-channels.js';
import { mayEnd, mustNotEnd, sharedInstant } from '../../timing/timeouts.js';
import { driftOf, elapsedSince, onceRead, type Instant } from '../../timing/clock.js';
import type { Place } from '../../timing/brief-collections.js';
import { callOf, heldFor, publishLost, publishReleased } from './permit-events.js';
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
export class HeldPermit implements Permit {
  readonly fencingToken: number;
  readonly ttl: number;
  /** Its place in the list of the watchdog. */
  place: Place<HeldPermit> | undefined;
  /** The time (ms) from one renewal to the next. */
  readonly period: number;
  /** When (monotonic, ms) the next renewal is due. */
  dueAt: number;
  /** Failed renewals since the last confirmed one. */
  failures = 0;
  /** When (monotonic, ms) it was granted, for its events; `undefined` if nobody listened then. */
  grantedAt: number | undefined;
  /** Why it was lost, as far as this process has noticed. */
  lostError: PermitLostError | undefined;
  private controller: AbortController | undefined;
  /** The async context in which `signal` was first read, for its listeners. */
  private context: AsyncResource | undefined;
  private ended = false;
  /** Whether it keeps the process alive. */
  private awake = false;
  private releasing: Promise<void> | undefined;

  constructor(
    readonly turn: PermitTurn,
    private readonly settings: SemaphoreSettings,
    private readonly source: PermitSource,
    /** The call that took it, if that has published an event. */
    private recorded: SemaphoreCall | undefined,
  ) {
    this.fencingToken = turn.takeToken();
    this.ttl = settings.ttl;
    turn.holder = this;
    this.period = Math.min(this.ttl / 3, LONGEST_UNRENEWED);
    this.dueAt = this.dueAfterGrant();
  }

  get key(): string {
    return this.turn.request.name;
  }

  /** Whether a renewal is under way, whose answer may have arrived without having been read. */
  get renewing(): boolean {
    return this.turn.renewing;
  }

  get call(): SemaphoreCall {
    return (this.recorded ??= callOf(this.source.eventSource, this.key, this.settings));
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

  get isOver(): boolean {
    return this.ended || this.lostError !== undefined;
  }

  remaining(): number {
    if (this.isOver) return 0;
    const left = trustedOf(this.turn.lease);
    if (left > 0) return left;
    if (!this.renewing) this.lose('expired');
    return 0;
  }

  get signal(): AbortSignal {
    this.remaining();
    if (!this.controller) {
      this.controller = new AbortController();
      if (this.lostError) this.controller.abort(this.lostError);
      else this.context = new AsyncResource('PermitSignal');
    }
    return this.controller.signal;
  }

  assertHeld(): void {
    if (this.held) return;
    throw this.lost ?? this.lossOf(this.ended ? 'taken' : 'expired');
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

  /** Called when the store answered `remaining` ms to a request sent at `sentAt`. */
  renewed(sentAt: Instant, remaining: number): void {
    const { turn, ttl } = this;
    turn.renewed(sentAt, this.source.trusted(this.key, remaining, ttl), ttl);
    this.dueAt = this.dueAfterGrant();
    if (turn.lease.remaining >= ttl) this.dueAt = sharedInstant(this.dueAt, this.period);
  }

  /** Keeps the process alive until the permit is over: its end may be all that its body waits for. */
  keepAwake(): void {
    if (this.isOver) return;
    this.awake = true;
    mustNotEnd();
  }

  lose(reason: PermitLostReason): void {
    if (this.isOver) return;
    this.letEnd();
    this.lostError = this.lossOf(reason);
    this.source.permitLost(this);
    publishLost(this, reason);
    const { controller, context, lostError } = this;
    this.context = undefined;
    if (context) context.runInAsyncScope(() => controller?.abort(lostError));
  }

  async release(): Promise<void> {
    this.releasing ??= this.releaseOrThrow();
    await this.releasing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.releasing) await this.release();
  }

  /** Ends the hold after a body; rejects only if the permit had been taken away while the lease was trusted. */
  finish(lost: PermitLostError | undefined): Promise<void> {
    return this.releasing ? RELEASED : (this.releasing = this.end(lost, true));
  }

  private async releaseOrThrow(): Promise<void> {
    await this.end(await this.lostOnceRead(), false);
  }

  /** No caller waits for the answer to the release: a loss that it shows is logged and published as any other. */
  private settleNow(lost: PermitLostError | undefined, answered: Promise<void>): Promise<void> {
    answered.catch((error: PermitLostError) => {
      if (error !== lost) this.source.lostUnseen(error);
    });
    return lost ? Promise.reject(lost) : RELEASED;
  }

  private end(lost: PermitLostError | undefined, mayStay: boolean): Promise<void> {
    this.ended = true;
    this.letEnd();
    this.context = undefined;
    const held = heldFor(this);
    const answered = new Promise<void>((resolve, reject) => {
      this.source.takeBack(this, trustedOf(this.turn.lease), mayStay, (answer) => {
        if (lost) return reject(lost);
        // After the deadline, "gone" says nothing: the lease had ended.
        const gone = answer !== undefined && !answer.live && !answer.resent;
        const taken = gone && trustedOf(this.turn.lease) > 0;
        if (taken) publishLost(this, 'taken', held);
        else if (!this.lostError && semaphoreChannels.released.hasSubscribers) publishReleased(this, held);
        if (taken) reject(this.lossOf('taken'));
        else resolve();
      });
    });
    return this.settings.release === 'background' ? this.settleNow(lost, answered) : answered;
  }

  private letEnd(): void {
    if (this.awake) mayEnd();
    this.awake = false;
  }

  /** After a third of the lease, or of what was granted, such as a claim: but there after half of it. */
  private dueAfterGrant(): number {
    const { sentAt, remaining } = this.turn.lease;
    const { ttl, period } = this;
    return sentAt.monotonic + (remaining < ttl ? Math.min(remaining / 2, period) : period);
  }

  private lossOf(reason: PermitLostReason): PermitLostError {
    const { fencingToken, owner } = this;
    return new PermitLostError(this.key, { reason, fencingToken, owner });
  }
}

/** A permit is renewed after this time (ms) at the latest: somebody may have taken it away. */
const LONGEST_UNRENEWED = 10_000;
/** How long (ms) a turn lasts at most: then the store decides again who is next, over all processes. */
const LONGEST_TURN = 10;
/** With less than this share of a grant left, nobody enters before it is renewed. */
const ENOUGH = 0.5;

/**
 * Permits that the store granted to this process under one ticket. Callers hold them one after another without a
 * request, each with a fencing token of its own, until the turn ends; then they go back to the store.
 */
export class PermitTurn {
  /** Whether the permits were given back, or lost. */
  over = false;
  lease: PermitLease;
  /** Who has it now, or had it last. */
  holder: HeldPermit | undefined;
  /** Whether a renewal is under way. */
  renewing = false;
  /** How much lease (ms) the last renewal gave that was for more. */
  most = Infinity;
  private nextToken: number;
  private readonly endOfTokens: number;
  private readonly endsAt = performance.now() + LONGEST_TURN;

  constructor(
    readonly request: PermitRequest,
    /** The calls among which it is passed on. */
    readonly line: PermitLine,
    grant: PermitGrant,
    /** Whether its ticket had to wait in the queue at the store. */
    readonly fromQueue: boolean,
  ) {
    this.lease = grant;
    this.nextToken = grant.fencingToken;
    this.endOfTokens = grant.fencingToken + grant.tokens;
  }

  takeToken(): number {
    return this.nextToken++;
  }

  /** Whether another caller may hold the permits before they go back. */
  get goesOn(): boolean {
    return !this.over && this.nextToken < this.endOfTokens && performance.now() < this.endsAt && isEnough(this.lease);
  }

  /** The store answered `remaining` ms to a request sent at `sentAt`. The deadline never moves back. */
  renewed(sentAt: Instant, remaining: number, asked: number): void {
    const lease = { sentAt, remaining };
    this.most = remaining < asked ? remaining : Infinity;
    if (trustedOf(lease) > trustedOf(this.lease)) this.lease = lease;
  }
}

/** Milliseconds that the store granted, and the instant before the request was sent from which they count. */
interface PermitLease {
  readonly sentAt: Instant;
  readonly remaining: number;
}

/** What the store granted: a lease and a range of fencing tokens. */
export interface PermitGrant extends PermitLease {
  readonly fencingToken: number;
  readonly tokens: number;
}

/** Milliseconds of a lease that can be trusted; 0 or less when its deadline has passed. */
export function trustedOf({ sentAt, remaining }: PermitLease): number {
  return remaining - driftOf(remaining) - elapsedSince(sentAt);
}

/** Whether enough of the lease is left for a caller to enter. */
export function isEnough(lease: PermitLease): boolean {
  return trustedOf(lease) >= ENOUGH * lease.remaining;
}
