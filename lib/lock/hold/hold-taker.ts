import { logOnce } from '../../errors/http-error.js';
import { isThrown } from '../../errors/limited-log.js';
import {
  LockBackendError,
  LockConfigError,
  LockTimeoutError,
  type LockLostError,
  type LockLostReason,
} from '../../errors/lock-errors.js';
import { lockChannels } from '../../events/lock-channels.js';
import { mayEnd, mustNotEnd } from '../../timing/timeouts.js';
import { LinkedList, type Place } from '../../timing/brief-collections.js';
import type { Lease, LossObserver } from '../grant/lease.js';
import { Caller, type FirstRequest } from '../line/caller.js';
import type { LockBackends } from '../line/lock-backends.js';
import type { QueueingBackend } from '../line/named-backend.js';
import { acquireLease, grantedTooLate } from '../line/polling.js';
import { SeveralNames, shareOneToken } from '../line/several-names.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { extendForNested, reenter, refuseToWaitForOwnHold, type HoldContext } from './hold-context.js';
import { HeldLock, holdsAreObserved, type HeldPart } from './held-lock.js';

/** What to do about a lock that was lost, by the reason. */
const REMEDIES: Record<LockLostReason, string> = {
  expired: 'check the fencing token where it writes; a longer "ttl" outlasts longer outages',
  taken: 'it was deleted or freed by force: check the fencing token where it writes',
  maxHold: 'do less in one hold, or raise "maxHold"',
  shutdown: 'end the work when the signal aborts, or raise "shutdownGrace"',
};

/** Options that have been checked against their backend, for any number of calls. */
export interface HoldRequest {
  readonly backend: QueueingBackend;
  readonly options: ResolvedLockOptions;
}

/** A call of this instance that waits for its names. */
interface Wait {
  place?: Place<Wait>;
  readonly backend: QueueingBackend;
  readonly names: readonly string[];
  /**
   * Whether the caller is inside of a hold. While the application shuts down, that hold can end only if the call ends.
   */
  readonly inside: boolean;
  readonly caller: Caller;
}

/**
 * Takes holds: re-enters those around the caller and acquires the other names. Keeps the list of the live holds of this
 * instance, and ends them all when the application shuts down.
 */
export class HoldTaker implements LossObserver {
  private readonly waits = new LinkedList<Wait>();
  /** Without lost holds, so that a caller that never releases a lost lock leaks nothing. */
  private readonly live = new LinkedList<HeldLock>();
  private idle: (() => void)[] = [];
  /** The holds that the shutdown does not wait for: their bodies wait for it. */
  private asking: ReadonlySet<unknown> = new Set();
  /** Refuses calls outside of any hold; the present holds may end within the grace. */
  private closing = false;
  /** Refuses all calls. */
  private closed = false;

  constructor(
    private readonly backends: LockBackends,
    readonly context: HoldContext,
  ) {}

  /** @throws LockConfigError when the backend is unknown, or cannot do what the options ask for */
  request(options: ResolvedLockOptions): HoldRequest {
    const backend = this.backends.get(options.backend);
    backend.requireSupport(options);
    if (options.order !== 'fifo' || backend.calls.backend.queue) return { backend, options };
    // Nobody else waits: the line of this process has the order.
    return { backend, options: { ...options, order: 'batched' } };
  }

  /**
   * Rejects with `first` if that was `answered`.
   *
   * @throws LockConfigError, LockBackendError, LockTimeoutError at once when the call cannot succeed
   */
  take(names: readonly string[], { backend, options }: HoldRequest, first?: FirstRequest): Promise<HeldLock> {
    const inside = this.context.scope !== undefined;
    if (this.refuses(inside)) throw shuttingDown(names);
    if (names.length > 1 && options.linger > 0) throw severalLinger(names, options);
    if (inside && !options.reentrant) refuseToWaitForOwnHold(this.context, backend, names);
    const wait: Wait = { backend, names, inside, caller: new Caller(options, names, backend.calls.source) };
    wait.caller.first = first;
    if (lockChannels.attempt.hasSubscribers && !first?.failed) wait.caller.publishAttempt();
    wait.place = this.waits.push(wait);
    mustNotEnd();
    if (inside || names.length > 1 || options.minHold > 0 || options.retry) {
      return this.takeParts(wait, options);
    }
    return this.takeOne(wait, options);
  }

  /**
   * What the caller gets instead of a hold that ended before its body began: since the grant, others may have kept the
   * event loop for longer than the lease, and a hold around the caller, whose lease it shares, may have ended. Takes
   * the names again while `wait` lasts.
   *
   * @throws LockBackendError when `wait` is over, and what `take` throws
   */
  async takeAgain(hold: HeldLock, { backend, options }: HoldRequest): Promise<HeldLock> {
    const lost = await hold.lostOnceRead();
    if (hold.held) return hold;
    const end = hold.finish();
    if (end) hold.settle(await end);
    const left = hold.askedAt + options.wait - performance.now();
    if (left <= 0) throw grantedTooLate(backend, hold.keys, options, lost);
    return this.take(hold.keys, { backend, options: { ...options, wait: Math.ceil(left) } });
  }

  /** Logs a lost lock; of the same names and reason once a minute. */
  leaseLost(error: LockLostError, { askedAt }: Lease): void {
    const { logger, options } = this.backends;
    const { keys, reason, message } = error;
    const ago = Math.round(performance.now() - askedAt);
    const line = `${message}; ${options.label} asked for it ${ago} ms ago. Remedy: ${REMEDIES[reason]}`;
    logOnce(logger, error, line, `${keys.join(' ')} ${reason}`);
  }

  /** Called when the hold was lost or has ended; again when a lost one ends. Returns whether it was the first time. */
  holdOver(hold: HeldLock): boolean {
    if (hold.awake) mayEnd();
    hold.awake = false;
    const first = hold.place?.leave() === true;
    if (first && this.idle.length > 0 && this.isIdle) for (const resolve of this.idle.splice(0)) resolve();
    return first;
  }

  /** The live holds. */
  all(): readonly HeldLock[] {
    return this.live.toArray();
  }

  /** How many holds of this instance are at the backend, and how many calls wait for it. */
  countsAt(backend: QueueingBackend): { held: number; waiting: number } {
    const held = this.all().filter((hold) => hold.isAt(backend)).length;
    return { held, waiting: this.waits.toArray().filter((wait) => wait.backend === backend).length };
  }

  /** How many calls of this instance wait for the name. */
  waitingFor(backend: QueueingBackend, name: string): number {
    let waiting = 0;
    for (const wait of this.waits.toArray()) if (wait.backend === backend && wait.names.includes(name)) waiting += 1;
    return waiting;
  }

  /**
   * Refuses new holds, lets the present ones end within the grace, and takes away the rest. A hold whose body called
   * the shutdown, which `around` has or its async context tells, is not waited for: it waits for the shutdown.
   */
  async shutDown(around: readonly object[]): Promise<void> {
    this.closing = true;
    for (const { contenders } of this.backends.all()) contenders.stopLingering();
    this.asking = new Set<unknown>([...this.context.holds, ...around]);
    for (const { inside, names, caller } of this.waits.toArray()) if (!inside) caller.cancel(shuttingDown(names));
    const timeUp = new AbortController();
    const grace = setTimeout(() => timeUp.abort(), this.backends.options.shutdownGrace);
    await Promise.race([this.whenIdle(), new Promise((resolve) => timeUp.signal.addEventListener('abort', resolve))]);
    clearTimeout(grace);
    this.closed = true;
    for (const { names, caller } of this.waits.toArray()) caller.cancel(shuttingDown(names));
    for (const hold of this.all()) hold.takeAway();
  }

  /** The short path for the usual case, one name outside of any hold; it makes a single promise. */
  private takeOne(wait: Wait, options: ResolvedLockOptions): Promise<HeldLock> {
    return new Promise((resolve, reject) => {
      const { backend, names, caller } = wait;
      const refuse = (error: unknown) => {
        this.settled(wait);
        reject(error);
        publishRefusal(caller, error, this.closing);
      };
      if (caller.cancellation) return refuse(caller.cancellation.reason);
      backend.contenders.join(
        names[0] as string,
        options,
        caller,
        (lease) => {
          // The line has just looked at the grant; one try took it by itself.
          const unsure = (lease.limited || options.wait === 0) && !lease.held;
          if (unsure || backend.watchdog.awaitsRenewal(lease.grant)) {
            this.takeParts(wait, options, [lease]).then(resolve, reject);
            return;
          }
          this.settled(wait);
          try {
            const parts = [this.received(wait, lease)];
            if (this.refuses(wait.inside)) throw shuttingDown(names);
            resolve(this.hold(wait, parts, options));
          } catch (error) {
            void lease.source.takeBack(lease, true);
            reject(error);
            publishRefusal(caller, error, this.closing);
          }
        },
        refuse,
      );
    });
  }

  /** `granted`: what it was granted already, which is not yet ready for a holder. */
  private async takeParts(wait: Wait, options: ResolvedLockOptions, granted?: readonly Lease[]): Promise<HeldLock> {
    const { backend, caller } = wait;
    const parts: HeldPart[] = [];
    try {
      if (!granted) caller.throwIfCancelled();
      await this.gather(wait, options, parts, granted);
      // A hold around the caller that has ended since released what both would have shared.
      while (this.isOver(backend, options, parts)) {
        giveBack(parts.splice(0));
        await this.gather(wait, { ...options, wait: Math.ceil(caller.remaining()) }, parts);
      }
      if (options.minHold > 0) for (const { lease } of parts) lease.grant.startMinHold(options.minHold);
      return this.hold(wait, parts, options);
    } catch (error) {
      giveBack(parts);
      publishRefusal(caller, error, this.closing);
      throw error;
    } finally {
      this.settled(wait);
    }
  }

  /** Adds all that the hold needs to `parts`. */
  private async gather(
    wait: Wait,
    options: ResolvedLockOptions,
    parts: HeldPart[],
    granted?: readonly Lease[],
  ): Promise<void> {
    const { backend, names, inside, caller } = wait;
    const missing = inside && options.reentrant ? await reenter(this.context, backend, names, caller, parts) : names;
    if (parts.length > 0) await extendForNested(parts, options, caller);
    if (missing.length > 0) {
      for (const lease of await this.usable(wait, missing, options, granted)) parts.push(this.received(wait, lease));
      if (this.refuses(inside)) throw shuttingDown(names);
    }
    if (parts.length > 1 && missing.length < names.length) {
      const leases = parts.map(({ lease }) => lease);
      await shareOneToken(backend.calls, leases, caller.limitOf(backend.calls));
    }
    if (options.minHold > 0) await outlastMinHold(parts, options, caller);
    if (this.refuses(inside)) throw shuttingDown(names);
  }

  /**
   * Whether any part has been released.
   *
   * @throws LockLostError when a hold around the caller was lost
   * @throws LockBackendError when what it was granted now, which nobody has held, has ended
   */
  private isOver(backend: QueueingBackend, options: ResolvedLockOptions, parts: readonly HeldPart[]): boolean {
    let over = false;
    for (const { lease, endTurn } of parts) {
      over ||= !lease.held;
      if (lease.lost) throw endTurn ? lease.lost : grantedTooLate(backend, lease.grant.names, options, lease.lost);
    }
    return over;
  }

  /**
   * Takes the names until each lease is still held when the caller gets it: the process may have stood still since the
   * grant. A short lease is renewed first, where the renewal that was sent may not have left this process.
   */
  private async usable(
    wait: Wait,
    names: readonly string[],
    options: ResolvedLockOptions,
    granted?: readonly Lease[],
  ): Promise<readonly Lease[]> {
    const { backend, caller } = wait;
    let leases = granted ?? (await this.leases(wait, names, options));
    for (;;) {
      await this.renewed(wait, leases).catch((error: unknown) => {
        for (const lease of leases) void lease.source.takeBack(lease, true);
        throw error;
      });
      const lost = leases.find((lease) => !lease.held);
      if (!lost) return leases;
      for (const lease of leases) void lease.source.takeBack(lease, true);
      if (caller.remaining() === 0) throw grantedTooLate(backend, names, options, lost.lost);
      leases = await this.leases(wait, names, { ...options, wait: Math.ceil(caller.remaining()) });
    }
  }

  /** Waits until no lease is short, or one has ended. @throws LockBackendError when the call must end before */
  private async renewed({ backend, names, caller }: Wait, leases: readonly Lease[]): Promise<void> {
    const { watchdog, calls } = backend;
    for (const { grant } of leases) {
      if (!watchdog.awaitsRenewal(grant)) continue;
      await caller.until(watchdog.renewedOrOver(grant), caller.left(calls));
      if (grant.holder?.held && watchdog.awaitsRenewal(grant)) throw calls.unanswered('renew', names, caller.waited());
    }
  }

  private async leases(
    { backend, caller }: Wait,
    names: readonly string[],
    options: ResolvedLockOptions,
  ): Promise<readonly Lease[]> {
    caller.throwIfCancelled();
    const { contenders } = backend;
    if (options.retry && (names.length === 1 || backend.calls.backend.acquireSeveral)) {
      return [await acquireLease(contenders, names, options, caller)];
    }
    if (names.length > 1) return new SeveralNames(contenders, names, options, caller).take();
    return [await contenders.take(names[0] as string, options, caller)];
  }

  private received({ backend, caller }: Wait, lease: Lease): HeldPart {
    lease.observer = this;
    lease.askedAt = caller.startedAt;
    return { backend, lease };
  }

  private hold({ names, caller }: Wait, parts: readonly HeldPart[], options: ResolvedLockOptions): HeldLock {
    if (caller.first) caller.asksForName();
    const hold = new HeldLock(names, parts, this, options, options.template, caller.recorded);
    hold.askedAt = caller.startedAt;
    hold.place = this.live.push(hold);
    if (holdsAreObserved()) publishAcquired(hold, caller);
    return hold;
  }

  private settled(wait: Wait): void {
    if (wait.place?.leave()) mayEnd();
    wait.caller.abortListener?.leave();
  }

  private get isIdle(): boolean {
    return this.all().every((hold) => this.asking.has(hold));
  }

  private refuses(inside: boolean): boolean {
    return this.closed || (this.closing && !inside);
  }

  private whenIdle(): Promise<void> {
    if (this.isIdle) return Promise.resolve();
    return new Promise((resolve) => this.idle.push(resolve));
  }
}

/** Makes each lease last for `minHold` without renewals, because that of a claim may be shorter. */
async function outlastMinHold(parts: readonly HeldPart[], options: ResolvedLockOptions, caller: Caller): Promise<void> {
  for (const { backend, lease } of parts) {
    if (lease.grant.lastsFor(options.minHold)) continue;
    await backend.keep(lease, options.lease, caller.limitOf(backend.calls));
  }
}

/** Gives back what a hold would have got. */
function giveBack(parts: readonly HeldPart[]): void {
  for (const { lease, endTurn } of parts) {
    if (endTurn) endTurn();
    else void lease.source.takeBack(lease, true);
  }
}

function severalLinger({ length }: readonly string[], { linger }: ResolvedLockOptions): LockConfigError {
  return new LockConfigError(
    `Option "linger" is ${linger}, but the call takes ${length} names, which are released together; leave it out, or give 0`,
  );
}

function shuttingDown(names: readonly string[]): LockBackendError {
  return new LockBackendError(names, 'The application is shutting down: no new lock is taken');
}

/** Publishes that the caller has the hold, and notes since when. */
function publishAcquired(hold: HeldLock, caller: Caller): void {
  hold.grantedAt = performance.now();
  if (!lockChannels.acquired.hasSubscribers) return;
  const { call, owner, fencingToken, reentrant } = hold;
  // V8 takes 2 µs to spread an object into another, a fifth of what a free lock costs.
  lockChannels.acquired.publish({ call, owner, fencingToken, waited: caller.waited(), reentrant });
}

/** Publishes why the call of `caller` ended without the lock. */
function publishRefusal(caller: Caller, error: unknown, closing: boolean): void {
  const { timedOut, failed } = lockChannels;
  if (caller.first?.failed) return;
  if (isThrown(error, LockTimeoutError)) {
    if (!timedOut.hasSubscribers) return;
    return timedOut.publish({ call: caller.call, waited: caller.waited(), remaining: error.remaining });
  }
  if (!failed.hasSubscribers) return;
  const reason = closing ? 'shutdown' : caller.cancellation ? 'aborted' : 'backend';
  failed.publish({ call: caller.call, waited: caller.waited(), reason, error });
}
