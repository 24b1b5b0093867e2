import { logOnce } from '../../errors/http-error.js';
import { LockLostError, type LockLostReason } from '../../errors/lock-errors.js';
import { lockChannels, type LockCall, type LockHoldEvent } from '../../events/lock-channels.js';
import type { Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { mayEnd, currentInstant, onceRead, type Instant } from '../../timing/clock.js';
import type { Listed } from '../../timing/brief-collections.js';
import type { LastRequest } from '../grant/store.js';
import { Lease, RELEASED, worseOf, type LeaseHolder, type ReleaseOutcome } from '../grant/lease.js';
import type { QueueingBackend } from '../line/named-backend.js';
import type { LockMode, ResolvedLockOptions } from '../options/lock-options.js';
import type { Caller, HoldRequest } from '../line/caller.js';
import type { BareAcquisition } from './bare-acquisition.js';
import type { HoldScope } from './hold-context.js';
import type { HoldTaker } from './hold-taker.js';
import type { Lock } from './lock.js';

/** What to do about a lock that was lost, by the reason. */
const REMEDIES: Record<LockLostReason, string> = {
  expired: 'check the fencing token where it writes; a longer "ttl" outlasts longer outages',
  taken: 'it was deleted or freed by force: check the fencing token where it writes',
  maxHold: 'do less in one hold, or raise "maxHold"',
  shutdown: 'end the work when the signal aborts, or raise "shutdownGrace"',
  released: 'use the lock before its release only',
};

/** A lease under a hold of several: its own, or that of a hold around it. */
export interface HeldPart {
  readonly lease: Lease;
  /** Ends the turn in the scope of the hold around it; absent if the lease is the hold's own. */
  readonly endTurn?: () => void;
}

/**
 * One hold. It has one lease, or several if holds around it have some of its names. The last hold on a lease releases
 * the lease.
 */
export class HeldLock implements Lock, LeaseHolder, Listed {
  /** Present where it reads. */
  declare readonly startedAt: Instant | undefined;
  /** Among the live holds. */
  index = -1;
  /** Its scope or its acquisition; both drop their references to each other when the hold ends. */
  context: HoldScope | BareAcquisition | undefined = undefined;
  /** When (monotonic, ms) it was granted; absent if nobody listened then. */
  declare grantedAt: number | undefined;
  declare private observedEnd: ObservedEnd | undefined;
  /** Its fencing token, where that is not the one of its only lease: each of its names has larger ones from now on. */
  declare private raised: number | undefined;
  private releasing: Promise<unknown> | undefined = undefined;
  /** Set when the backend answered to the release that another ticket owned the name. */
  declare private taken: LockLostError | undefined;
  /** `'awake'`: it keeps the process alive, as the wait for it did. */
  private stage: 'awake' | 'asleep' | 'ended' = 'awake';
  declare private joinedSignal: AbortSignal | undefined;
  /** The call in its events; absent while there was none. */
  declare private recorded: LockCall | undefined;
  /** When (monotonic, whole ms) its call asked for it. */
  readonly askedAt: number;

  constructor(
    readonly keys: readonly string[],
    /** Its own lease, where that is all; an object around it would be one more for each hold. */
    private readonly under: Lease | readonly HeldPart[],
    private readonly taker: HoldTaker,
    private readonly request: HoldRequest,
    { recorded, startedAt }: Caller,
  ) {
    this.askedAt = Math.floor(startedAt);
    if (request.options.mode === 'read') this.startedAt = currentInstant();
    if (recorded) this.recorded = recorded;
    if (under instanceof Lease) under.share(this);
    else {
      for (const { lease } of under) lease.share(this);
      this.raised = Math.max(...under.map(({ lease }) => lease.fencingToken));
    }
  }

  /** Of its own lease, or of the first one of a hold around it. */
  get owner(): string {
    const { under } = this;
    const lease = under instanceof Lease ? under : (under.find(({ endTurn }) => !endTurn) ?? under[0])?.lease;
    return (lease as Lease).grant.ticket;
  }

  get options(): ResolvedLockOptions {
    return this.request.options;
  }

  private get backend(): QueueingBackend {
    return this.request.backend;
  }

  /** The call in its events. */
  get call(): LockCall {
    const { keys, backend, options } = this;
    return (this.recorded ??= { keys, template: options.template, ...backend.calls.source });
  }

  get mode(): LockMode {
    return this.options.mode;
  }

  get reentrant(): boolean {
    const { under } = this;
    return !(under instanceof Lease) && under.every(({ endTurn }) => endTurn !== undefined);
  }

  get fencingToken(): number {
    const { under, raised = 0 } = this;
    // Of several leases, one may have the token of a nested hold that the names of another have not confirmed.
    return under instanceof Lease ? Math.max(raised, under.fencingToken) : raised;
  }

  /** Raises the fencing token to that of a nested hold with further names: the protected resource may have seen it. */
  raiseToken(token: number): void {
    if (token > this.fencingToken) this.raised = token;
  }

  /** All its leases. */
  get leases(): readonly Lease[] {
    const { under } = this;
    return under instanceof Lease ? [under] : under.map(({ lease }) => lease);
  }

  get signal(): AbortSignal {
    const { under } = this;
    if (under instanceof Lease) return under.signal;
    return (this.joinedSignal ??= AbortSignal.any(this.leases.map(({ signal }) => signal)));
  }

  get held(): boolean {
    return this.remaining() > 0;
  }

  remaining(): number {
    if (this.stage === 'ended') return 0;
    const { under } = this;
    if (under instanceof Lease) return under.remaining();
    let least = Infinity;
    for (const { lease } of under) least = Math.min(least, lease.remaining());
    return least;
  }

  /** Why it was lost; `undefined` while it is held, and after it was released in time. */
  get lost(): LockLostError | undefined {
    for (const lease of this.leases) if (lease.lost) return lease.lost;
    return this.taken;
  }

  /** The same without reading the clock: does not notice a deadline that has just passed. */
  get isLost(): boolean {
    for (const lease of this.leases) if (lease.isLost) return true;
    return this.taken !== undefined;
  }

  /** As `lost`, after reading the answers that arrived while the event loop was blocked: one may renew the lease. */
  async lostOnceRead(): Promise<LockLostError | undefined> {
    if (this.leases.some((lease) => lease.overdue)) await new Promise<void>(onceRead);
    return this.lost;
  }

  get isReleased(): boolean {
    return this.stage === 'ended';
  }

  /** The lease that covers this name, with the turn that it needs. */
  partOf(backend: QueueingBackend, name: string): HeldPart | undefined {
    if (!this.isAt(backend) || !this.keys.includes(name)) return undefined;
    const lease = this.leases.find(({ grant }) => grant.names.includes(name));
    return lease && { lease };
  }

  assertHeld(): void {
    if (this.held) return;
    throw this.lost ?? this.lostAs('released');
  }

  async extend(ttl?: Duration): Promise<void> {
    const given = ttl === undefined ? undefined : lockOption.timerMilliseconds('ttl', ttl, 1);
    this.assertHeld();
    await Promise.all(this.leases.map((lease) => this.backend.extend(lease, given)));
    this.assertHeld();
  }

  async release(): Promise<void> {
    this.releasing ??= this.releaseOrThrow();
    await this.releasing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.releasing) await this.release();
  }

  /**
   * Ends the hold; never rejects. Returns `undefined` if there is nothing to wait for, as with a release in the
   * background. `trusted`: it was seen to be held a moment ago.
   */
  finish(trusted?: true): Promise<ReleaseOutcome> | undefined {
    if (this.releasing) return undefined;
    const outcome = this.end(false, trusted);
    this.releasing = outcome;
    if (outcome === RELEASED) this.settle('released');
    else if (this.request.options.release === 'confirmed') return outcome;
    else this.settleLater(outcome);
    return undefined;
  }

  /**
   * Called with what `finish` resolved to. Returns whether the backend answered that the lock had been taken away
   * before its release. An answer after the deadline does not count: the lease had ended, and another owner may have
   * followed.
   */
  settle(outcome: ReleaseOutcome): boolean {
    const gone = outcome === 'gone' || outcome === 'taken';
    const taken = gone && this.leases.every(({ grant }) => grant.remaining() > 0);
    if (taken) this.taken ??= this.lostAs('taken');
    if (this.observedEnd) publishEnd(this, this.observedEnd, outcome, taken);
    return taken;
  }

  /**
   * Ends the hold by a request that frees its name in the same step as it does something else. Nobody re-enters it from
   * now on. Resolves to `unconfirmed` if it goes on, because the request was not answered in time. `undefined` where
   * the name is not to be freed now, or not in one step.
   */
  endBy(by: LastRequest): Promise<ReleaseOutcome> | undefined {
    const { under: lease } = this;
    if (this.releasing || !(lease instanceof Lease) || !lease.isOnlyOf(this)) return undefined;
    const ending = lease.source.endBy?.(lease, by);
    if (!ending) return undefined;
    this.context?.close();
    return ending.then((outcome) => {
      if (outcome === 'unconfirmed' || this.releasing || lease.isLost) return outcome;
      this.releasing = RELEASED;
      void this.end(false, true, outcome);
      this.settle(outcome);
      return outcome;
    });
  }

  isAt(backend: QueueingBackend): boolean {
    return this.backend === backend;
  }

  /** Called when the lock of this ticket was released by force. */
  revoke(backend: QueueingBackend, ticket: string): void {
    if (!this.isAt(backend)) return;
    for (const lease of this.leases) if (lease.grant.ticket === ticket) lease.lose('taken');
  }

  /** Called when the application shuts down: the holder loses the lock, and the backend frees it. */
  takeAway(): void {
    for (const lease of this.leases) {
      lease.lose('shutdown');
      this.backend.releaser.abandon(lease.grant, lease.grant.longest);
    }
  }

  /** No longer keeps the process alive. Until then it does: its end may be all that its body waits for. */
  letEnd(): void {
    if (this.stage !== 'awake') return;
    mayEnd();
    this.stage = 'asleep';
  }

  leaseLost(error: LockLostError, first: boolean): void {
    const { lost } = lockChannels;
    this.letEnd();
    if (first) this.logLoss(error);
    if (this.taker.holdOver(this) && lost.hasSubscribers) publishLost(this, this.lost?.reason ?? 'expired');
  }

  runAsHolder(callback: () => void): void {
    this.taker.context.runAs(this, callback);
  }

  /** Called when its `Lock` was garbage-collected: stops the renewal of the leases that no other hold shares. */
  orphan(): void {
    for (const lease of this.leases) if (lease.orphan(this)) this.backend.watchdog.watch(lease.grant);
  }

  private async releaseOrThrow(): Promise<void> {
    const lost = this.remaining() > 0 ? undefined : await this.lostOnceRead();
    const outcome = this.end(true, lost ? undefined : true);
    const inBackground = this.request.options.release === 'background';
    if (inBackground) this.settleLater(outcome);
    const taken = !inBackground && this.settle(await outcome);
    if (lost) throw lost;
    if (taken) throw this.taken;
  }

  /** No caller waits for the answer to the release: a loss that it shows is logged and published as any other. */
  private settleLater(outcome: Promise<ReleaseOutcome>): void {
    const late = this.isLost;
    void outcome.then((answer) => {
      if (this.settle(answer) && this.taken && !late) this.logLoss(this.taken);
    });
  }

  /** `known`: the outcome of a release that was answered. */
  private end(atOnce: boolean, trusted: true | undefined, known?: ReleaseOutcome): Promise<ReleaseOutcome> {
    const observed = holdsAreObserved();
    const late = observed && this.isLost;
    const { under } = this;
    const { backend, options } = this.request;
    const parts: readonly HeldPart[] = under instanceof Lease ? [{ lease: under }] : under;
    if (this.stage === 'awake') mayEnd();
    this.stage = 'ended';
    let outcome: Promise<ReleaseOutcome> = RELEASED;
    for (const { lease } of parts) {
      const last = lease.unshare(this);
      if (!last && lease.leftToReaders) backend.contenders.downgrade(lease);
      if (!last || known) continue;
      if (lockChannels.handedOver.hasSubscribers) lease.endedBy = this.call;
      const ofLease = lease.source.takeBack(lease, atOnce, trusted);
      if (options.release === 'background') backend.releaser.inBackground(lease.grant.names, ofLease);
      outcome = outcome === RELEASED ? ofLease : worseOf(outcome, ofLease);
    }
    for (const { endTurn } of parts) endTurn?.();
    this.context?.close();
    this.context = undefined;
    this.taker.holdOver(this);
    if (observed) this.observedEnd = observeEnd(this, late);
    return outcome;
  }

  /** Of the same names and reason once a minute. */
  private logLoss(error: LockLostError): void {
    const { logger, options } = this.taker.backends;
    const { keys, reason, message } = error;
    const ago = Math.round(performance.now() - this.askedAt);
    const line = `${message}; ${options.label} asked for it ${ago} ms ago. Remedy: ${REMEDIES[reason]}`;
    logOnce(logger, error, line, `${keys.join(' ')} ${reason}`);
  }

  private lostAs(reason: 'taken' | 'released'): LockLostError {
    return new LockLostError(this.keys, { reason, fencingToken: this.fencingToken, owner: this.owner });
  }
}

/** Whether somebody listens to the beginning or the end of holds. */
export function holdsAreObserved(): boolean {
  const { acquired, released, lost, releasedLate } = lockChannels;
  return acquired.hasSubscribers || released.hasSubscribers || lost.hasSubscribers || releasedLate.hasSubscribers;
}

function publishLost(hold: HeldLock, reason: LockLostReason): void {
  lockChannels.lost.publish({ ...eventOf(hold), reason, held: heldFor(hold) });
}

/** Publishes that the caller has the hold, and notes since when. */
export function publishAcquired(hold: HeldLock, caller: Caller): void {
  hold.grantedAt = performance.now();
  if (!lockChannels.acquired.hasSubscribers) return;
  const { call, owner, fencingToken, reentrant } = hold;
  // V8 takes 2 µs to spread an object into another, a fifth of what a free lock costs.
  lockChannels.acquired.publish({ call, owner, fencingToken, waited: caller.waited(), reentrant });
}

/** The end of a hold that was trusted until then. It is published once the backend has answered to the release. */
interface ObservedEnd {
  readonly held: number | undefined;
}

/** Called when a hold ends; `late`: it was known to be lost. Publishes at once if it was, or if its deadline passed. */
function observeEnd(hold: HeldLock, late: boolean): ObservedEnd | undefined {
  if (!late && !hold.isLost) return { held: heldFor(hold) };
  if (!late) publishLost(hold, 'expired');
  lockChannels.releasedLate.publish({ ...eventOf(hold), held: heldFor(hold) });
  return undefined;
}

/** `taken`: the backend answered that the lock had been taken away before its release. */
function publishEnd(hold: HeldLock, { held }: ObservedEnd, outcome: ReleaseOutcome, taken: boolean): void {
  const { call, owner, fencingToken } = hold;
  if (taken) lockChannels.lost.publish({ call, owner, fencingToken, reason: 'taken', held });
  else lockChannels.released.publish({ call, owner, fencingToken, held, confirmed: outcome !== 'unconfirmed' });
}

function eventOf({ call, owner, fencingToken }: HeldLock): LockHoldEvent {
  return { call, owner, fencingToken };
}

function heldFor({ grantedAt }: HeldLock): number | undefined {
  return grantedAt === undefined ? undefined : performance.now() - grantedAt;
}
