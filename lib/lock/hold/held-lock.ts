import { LockLostError, type LockLostReason } from '../../errors/lock-errors.js';
import { lockChannels, type LockCall, type LockHoldEvent } from '../../events/lock-channels.js';
import type { Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { mustNotEnd } from '../../timing/timeouts.js';
import { currentInstant, onceRead, type Instant } from '../../timing/clock.js';
import type { Place } from '../../timing/brief-collections.js';
import type { LastRequest } from '../grant/store.js';
import { RELEASED, worseOf, type Lease, type LeaseHolder, type ReleaseOutcome } from '../grant/lease.js';
import type { QueueingBackend } from '../line/named-backend.js';
import type { LockMode, ResolvedLockOptions } from '../options/lock-options.js';
import type { BareAcquisition } from './bare-acquisition.js';
import type { HoldScope } from './hold-context.js';
import type { HoldTaker } from './hold-taker.js';
import type { Lock } from './lock.js';

/** A lease under a hold: its own, or that of a hold around it. */
export interface HeldPart {
  readonly backend: QueueingBackend;
  readonly lease: Lease;
  /** Ends the turn in the scope of the hold around it; absent if the lease is the hold's own. */
  readonly endTurn?: () => void;
}

/**
 * One hold. It has one lease, or several if holds around it have some of its names. The last hold on a lease releases
 * the lease.
 */
export class HeldLock implements Lock, LeaseHolder {
  readonly owner: string;
  readonly startedAt: Instant | undefined;
  /** Its position in the list of live holds. */
  place: Place<HeldLock> | undefined;
  /** Its scope or its acquisition; both drop their references to each other when the hold ends. */
  context: HoldScope | BareAcquisition | undefined;
  /** When (monotonic, ms) its call asked for it. */
  askedAt = 0;
  /** When (monotonic, ms) it was granted; `undefined` if nobody listened then. */
  grantedAt: number | undefined;
  private observedEnd: ObservedEnd | undefined;
  private token: number;
  private releasing: Promise<unknown> | undefined;
  /** Set when the backend answered to the release that another ticket owned the name. */
  private taken: LockLostError | undefined;
  private ended = false;
  /** Whether it keeps the process alive. */
  awake = false;
  private joinedSignal: AbortSignal | undefined;

  constructor(
    readonly keys: readonly string[],
    private readonly parts: readonly HeldPart[],
    private readonly taker: HoldTaker,
    readonly options: ResolvedLockOptions,
    private readonly template: string | undefined,
    /** The call in its events; `undefined` while there was none. */
    private recorded: LockCall | undefined,
  ) {
    this.startedAt = options.mode === 'read' ? currentInstant() : undefined;
    const [first] = parts as readonly [HeldPart, ...HeldPart[]];
    let own: HeldPart | undefined;
    this.token = first.lease.fencingToken;
    for (const part of parts) {
      if (!part.endTurn) own ??= part;
      this.token = Math.max(this.token, part.lease.fencingToken);
      part.lease.share(this);
    }
    this.owner = (own ?? first).lease.grant.ticket;
  }

  /** The call in its events. */
  get call(): LockCall {
    const { template, keys } = this;
    return (this.recorded ??= { keys, template, ...(this.parts[0] as HeldPart).backend.calls.source });
  }

  get mode(): LockMode {
    return this.options.mode;
  }

  get reentrant(): boolean {
    return this.parts.every(({ endTurn }) => endTurn !== undefined);
  }

  get fencingToken(): number {
    return this.token;
  }

  /** Raises the fencing token to that of a nested hold with further names: the protected resource may have seen it. */
  raiseToken(token: number): void {
    this.token = Math.max(this.token, token);
  }

  /** All its leases. */
  get leases(): readonly Lease[] {
    return this.parts.map(({ lease }) => lease);
  }

  get signal(): AbortSignal {
    const signals = this.parts.map((part) => part.lease.signal);
    if (signals.length === 1) return signals[0] as AbortSignal;
    return (this.joinedSignal ??= AbortSignal.any(signals));
  }

  get held(): boolean {
    return this.remaining() > 0;
  }

  remaining(): number {
    if (this.ended) return 0;
    let least = Infinity;
    for (const { lease } of this.parts) least = Math.min(least, lease.remaining());
    return least;
  }

  /** Why it was lost; `undefined` while it is held, and after it was released in time. */
  get lost(): LockLostError | undefined {
    for (const { lease } of this.parts) if (lease.lost) return lease.lost;
    return this.taken;
  }

  /** The same without reading the clock: does not notice a deadline that has just passed. */
  get isLost(): boolean {
    for (const { lease } of this.parts) if (lease.isLost) return true;
    return this.taken !== undefined;
  }

  /** As `lost`, after reading the answers that arrived while the event loop was blocked: one may renew the lease. */
  async lostOnceRead(): Promise<LockLostError | undefined> {
    if (this.parts.some(({ lease }) => lease.overdue)) await new Promise<void>(onceRead);
    return this.lost;
  }

  get isReleased(): boolean {
    return this.ended;
  }

  /** The lease that covers this name, with the turn that it needs. */
  partOf(backend: QueueingBackend, name: string): HeldPart | undefined {
    if (!this.keys.includes(name)) return undefined;
    return this.parts.find((part) => part.backend === backend && part.lease.grant.names.includes(name));
  }

  assertHeld(): void {
    if (this.held) return;
    throw this.lost ?? this.lostAs('taken');
  }

  async extend(ttl?: Duration): Promise<void> {
    const given = ttl === undefined ? undefined : lockOption.timerMilliseconds('ttl', ttl, 1);
    this.assertHeld();
    await Promise.all(this.parts.map(({ backend, lease }) => backend.extend(lease, given)));
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
    else if (this.options.release === 'confirmed') return outcome;
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
    const taken = gone && this.parts.every(({ lease }) => lease.grant.remaining() > 0);
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
    const [{ lease, endTurn }] = this.parts as readonly [HeldPart, ...HeldPart[]];
    if (this.releasing || this.parts.length > 1 || endTurn || !lease.isOnlyOf(this)) return undefined;
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
    return this.parts.some((part) => part.backend === backend);
  }

  /** Called when the lock of this ticket was released by force. */
  revoke(backend: QueueingBackend, ticket: string): void {
    for (const part of this.parts) {
      if (part.backend === backend && part.lease.grant.ticket === ticket) part.lease.lose('taken');
    }
  }

  /** Called when the application shuts down: the holder loses the lock, and the backend frees it. */
  takeAway(): void {
    for (const { backend, lease } of this.parts) {
      lease.lose('shutdown');
      backend.releaser.abandon(lease.grant, lease.grant.longest);
    }
  }

  /** Keeps the process alive until the hold, which is held, is over: its end may be all that its body waits for. */
  keepAwake(): void {
    this.awake = true;
    mustNotEnd();
  }

  leaseLost(): void {
    const { lost } = lockChannels;
    if (this.taker.holdOver(this) && lost.hasSubscribers) publishLost(this, this.lost?.reason ?? 'expired');
  }

  runAsHolder(callback: () => void): void {
    this.taker.context.runAs(this, callback);
  }

  /** Called when its `Lock` was garbage-collected: stops the renewal of the leases that no other hold shares. */
  orphan(): void {
    for (const { backend, lease } of this.parts) if (lease.orphan(this)) backend.watchdog.watch(lease.grant);
  }

  private async releaseOrThrow(): Promise<void> {
    const lost = this.held ? undefined : await this.lostOnceRead();
    const outcome = this.end(true, lost ? undefined : true);
    const inBackground = this.options.release === 'background';
    if (inBackground) this.settleLater(outcome);
    const taken = !inBackground && this.settle(await outcome);
    if (lost) throw lost;
    if (taken) throw this.taken;
  }

  /** No caller waits for the answer to the release: a loss that it shows is logged and published as any other. */
  private settleLater(outcome: Promise<ReleaseOutcome>): void {
    const late = this.isLost;
    void outcome.then((answer) => {
      if (this.settle(answer) && this.taken && !late) this.taker.leaseLost(this.taken, this.leases[0] as Lease);
    });
  }

  /** `known`: the outcome of a release that was answered. */
  private end(atOnce: boolean, trusted: true | undefined, known?: ReleaseOutcome): Promise<ReleaseOutcome> {
    const observed = holdsAreObserved();
    const late = observed && this.isLost;
    this.ended = true;
    let outcome: Promise<ReleaseOutcome> = RELEASED;
    for (const { backend, lease } of this.parts) {
      const last = lease.unshare(this);
      if (!last && lease.leftToReaders) backend.contenders.downgrade(lease);
      if (!last || known) continue;
      if (lockChannels.handedOver.hasSubscribers) lease.endedBy = this.call;
      const ofLease = lease.source.takeBack(lease, atOnce, trusted);
      if (this.options.release === 'background') backend.releaser.inBackground(lease.grant.names, ofLease);
      outcome = outcome === RELEASED ? ofLease : worseOf(outcome, ofLease);
    }
    for (const { endTurn } of this.parts) endTurn?.();
    this.context?.close();
    this.context = undefined;
    this.taker.holdOver(this);
    if (observed) this.observedEnd = observeEnd(this, late);
    return outcome;
  }

  private lostAs(reason: 'taken'): LockLostError {
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
