import { AsyncResource } from 'node:async_hooks';
import { LockBackendError, LockConfigError } from '../../errors/lock-errors.js';
import { lockChannels } from '../../events/lock-channels.js';
import { mayEnd, mustNotEnd } from '../../timing/clock.js';
import { Roster, type Listed } from '../../timing/brief-collections.js';
import type { Lease } from '../grant/lease.js';
import { Caller, type FirstRequest, type HoldRequest, type Served } from '../line/caller.js';
import type { LockBackends } from '../line/lock-backends.js';
import type { QueueingBackend } from '../line/named-backend.js';
import { acquireLease, grantedTooLate } from '../line/polling.js';
import { SeveralNames, shareOneToken } from '../line/several-names.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { AcquiredLock, DroppedLocks, type BareAcquisition } from './bare-acquisition.js';
import { extendForNested, outlastMinHold, reenter, refuseToWaitForOwnHold, type HoldContext } from './hold-context.js';
import { HeldLock, holdsAreObserved, publishAcquired, type HeldPart } from './held-lock.js';
import type { Lock } from './lock.js';

/** A call of this instance that waits for its names. Its promise is the only one, while it waits for a single name. */
class Wait extends Caller implements Served, Listed {
  index = -1;
  resolve: ((hold: Lock | Promise<Lock>) => void) | undefined = undefined;
  /** The async context of an `acquire`, for the events of a second try. Only while somebody listens. */
  declare context: AsyncResource | undefined;

  constructor(
    private readonly taker: HoldTaker,
    request: HoldRequest,
    names: readonly string[],
    /** Whether the caller is inside of a hold. At the shutdown, that hold can end only if the call ends. */
    readonly inside: boolean,
    /** Of an `acquire`. */
    readonly acquisition: BareAcquisition | undefined,
  ) {
    super(request, names);
  }

  admitted(lease: Lease): void {
    const { taker, options, inside, names, acquisition, context } = this;
    const { backend } = this.request;
    let hold: HeldLock | Promise<HeldLock>;
    // The line has just looked at the grant; one try took it by itself.
    const unsure = (lease.limits || options.wait === 0) && !lease.held;
    if (unsure || (lease.grant.renewing && backend.watchdog.awaitsRenewal(lease.grant))) {
      hold = taker.takeParts(this, options, [lease]);
    } else {
      try {
        if (taker.closing && taker.refuses(inside)) throw shuttingDown(names);
        hold = taker.hold(this, lease);
      } catch (error) {
        void lease.source.takeBack(lease, true);
        return this.refused(error);
      }
    }
    if (!acquisition) this.resolve?.(hold);
    else if (context) context.runInAsyncScope(() => this.resolve?.(taker.handOut(hold, this, acquisition)));
    else this.resolve?.(taker.handOut(hold, this, acquisition));
  }

  refused(reason: unknown): void {
    this.taker.settled(this);
    this.acquisition?.close();
    // By one function: while it waits, a second one would be kept for each call.
    this.resolve?.(Promise.reject(reason));
    this.publishRefusal(reason, this.taker.closing);
  }
}

/**
 * Takes holds: re-enters those around the caller and acquires the other names. Keeps the list of the live holds of this
 * instance, and ends them all when the application shuts down.
 */
export class HoldTaker {
  readonly dropped: DroppedLocks;
  private readonly waits = new Roster<Wait>();
  /** Without lost holds, so that a caller that never releases a lost lock leaks nothing. */
  private readonly live = new Roster<HeldLock>();
  private idle: (() => void)[] = [];
  /** The holds that the shutdown does not wait for: their bodies wait for it. */
  private asking: ReadonlySet<unknown> = new Set();
  /** Refuses calls outside of any hold; the present holds may end within the grace. */
  closing = false;
  /** Refuses all calls. */
  private closed = false;

  constructor(
    readonly backends: LockBackends,
    readonly context: HoldContext,
  ) {
    this.dropped = new DroppedLocks(backends.logger, backends.options.label);
  }

  /** @throws LockConfigError when the backend is unknown, or cannot do what the options ask for */
  request(options: ResolvedLockOptions): HoldRequest {
    const backend = this.backends.get(options.backend);
    backend.requireSupport(options);
    if (options.order !== 'fifo' || backend.calls.store.queue) return { backend, options };
    // Nobody else waits: the line of this process has the order.
    return { backend, options: { ...options, order: 'batched' } };
  }

  /**
   * Rejects with `first` if that was `answered`. With an `acquisition`, resolves to the `Lock` of its caller.
   *
   * @throws LockConfigError, LockBackendError, LockTimeoutError at once when the call cannot succeed
   */
  take(names: readonly string[], request: HoldRequest, first?: FirstRequest): Promise<HeldLock>;
  take(
    names: readonly string[],
    request: HoldRequest,
    first: undefined,
    acquisition: BareAcquisition | undefined,
    inside?: boolean,
  ): Promise<Lock>;
  take(
    names: readonly string[],
    request: HoldRequest,
    first?: FirstRequest,
    acquisition?: BareAcquisition,
    inside = this.context.scope !== undefined,
  ): Promise<Lock> {
    const { backend, options } = request;
    if (this.closing && this.refuses(inside)) throw shuttingDown(names);
    if (names.length > 1 && options.linger > 0) throw severalLinger(names, options);
    if (inside && !options.reentrant) refuseToWaitForOwnHold(this.context, backend, names);
    const wait = new Wait(this, request, names, inside, acquisition);
    if (first) wait.first = first;
    if (lockChannels.attempt.hasSubscribers && !first?.failed) wait.publishAttempt();
    this.waits.add(wait);
    mustNotEnd();
    if (inside || names.length > 1 || options.minHold > 0 || options.retry) {
      const taken = this.takeParts(wait, options);
      return acquisition ? this.handOut(taken, wait, acquisition) : taken;
    }
    // The short path for the usual case, one name outside of any hold.
    return new Promise((resolve) => {
      wait.resolve = resolve;
      if (wait.cancellation) return wait.refused(wait.cancellation.reason);
      if (acquisition && lockChannels.attempt.hasSubscribers) wait.context = new AsyncResource('LockAcquisition');
      backend.contenders.join(names[0] as string, options, wait, wait);
    });
  }

  /**
   * What the caller gets instead of a hold that ended before its body began: since the grant, others may have kept the
   * event loop for longer than the lease, and a hold around the caller, whose lease it shares, may have ended. Takes
   * the names again while `wait` lasts. `inside`: of a hold is the caller, in whose async context this may not run.
   *
   * @throws LockBackendError when `wait` is over, and what `take` throws
   */
  async takeAgain(hold: HeldLock, { backend, options }: HoldRequest, inside?: boolean): Promise<HeldLock> {
    const lost = await hold.lostOnceRead();
    if (hold.held) return hold;
    const end = hold.finish();
    if (end) hold.settle(await end);
    const left = hold.askedAt + options.wait - performance.now();
    if (left <= 0) throw grantedTooLate(backend, hold.keys, options, lost);
    const again = { backend, options: { ...options, wait: Math.ceil(left) } };
    return this.take(hold.keys, again, undefined, undefined, inside) as Promise<HeldLock>;
  }

  /** Gives the hold to the caller of `acquire`, if it is still held by the time that the caller goes on. */
  async handOut(taken: HeldLock | Promise<HeldLock>, wait: Wait, acquisition: BareAcquisition): Promise<Lock> {
    try {
      let hold = await taken;
      while (hold.remaining() === 0) hold = await this.takeAgain(hold, wait.request, wait.inside);
      hold.letEnd();
      hold.context = acquisition;
      acquisition.hold = hold;
      const lock = new AcquiredLock(hold);
      if (wait.request.options.renewal) this.dropped.registry.register(lock, hold);
      return lock;
    } catch (error) {
      acquisition.close();
      throw error;
    }
  }

  /** Called when the hold was lost or has ended; again when a lost one ends. Returns whether it was the first time. */
  holdOver(hold: HeldLock): boolean {
    const first = this.live.remove(hold);
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
    for (const wait of this.waits.toArray()) if (!wait.inside) wait.cancel(shuttingDown(wait.names));
    const timeUp = new AbortController();
    const grace = setTimeout(() => timeUp.abort(), this.backends.options.shutdownGrace);
    await Promise.race([this.whenIdle(), new Promise((resolve) => timeUp.signal.addEventListener('abort', resolve))]);
    clearTimeout(grace);
    this.closed = true;
    for (const wait of this.waits.toArray()) wait.cancel(shuttingDown(wait.names));
    for (const hold of this.all()) hold.takeAway();
  }

  /** `granted`: what it was granted already, which is not yet ready for a holder. */
  async takeParts(wait: Wait, options: ResolvedLockOptions, granted?: readonly Lease[]): Promise<HeldLock> {
    const { backend } = wait;
    const parts: HeldPart[] = [];
    try {
      if (!granted) wait.throwIfCancelled();
      await this.gather(wait, options, parts, granted);
      // A hold around the caller that has ended since released what both would have shared.
      while (this.isOver(backend, options, parts)) {
        giveBack(parts.splice(0));
        await this.gather(wait, { ...options, wait: Math.ceil(wait.remaining()) }, parts);
      }
      if (options.minHold > 0) for (const { lease } of parts) lease.grant.startMinHold(options.minHold);
      return this.hold(wait, own(parts));
    } catch (error) {
      giveBack(parts);
      wait.publishRefusal(error, this.closing);
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
    const { backend, names, inside } = wait;
    const missing = inside && options.reentrant ? await reenter(this.context, backend, names, wait, parts) : names;
    if (parts.length > 0) await extendForNested(backend, parts, options, wait);
    if (missing.length > 0) {
      for (const lease of await this.usable(wait, missing, options, granted)) parts.push({ lease });
      if (this.refuses(inside)) throw shuttingDown(names);
    }
    if (parts.length > 1 && missing.length < names.length) {
      const leases = parts.map(({ lease }) => lease);
      await shareOneToken(backend.calls, leases, wait.limitOf(backend.calls));
    }
    if (options.minHold > 0) await outlastMinHold(backend, parts, options, wait);
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
    const { backend } = wait;
    let leases = granted ?? (await this.leases(wait, names, options));
    for (;;) {
      await this.renewed(wait, leases).catch((error: unknown) => {
        for (const lease of leases) void lease.source.takeBack(lease, true);
        throw error;
      });
      const lost = leases.find((lease) => !lease.held);
      if (!lost) return leases;
      for (const lease of leases) void lease.source.takeBack(lease, true);
      const left = wait.remaining();
      if (left === 0) throw grantedTooLate(backend, names, options, lost.lost);
      leases = await this.leases(wait, names, { ...options, wait: Math.ceil(left) });
    }
  }

  /** Waits until no lease is short, or one has ended. @throws LockBackendError when the call must end before */
  private async renewed(caller: Wait, leases: readonly Lease[]): Promise<void> {
    const { backend, names } = caller;
    const { watchdog, calls } = backend;
    for (const { grant } of leases) {
      if (!watchdog.awaitsRenewal(grant)) continue;
      await caller.until(watchdog.renewedOrOver(grant), caller.left(calls));
      if (grant.holder?.held && watchdog.awaitsRenewal(grant)) throw calls.unanswered('renew', names, caller.waited());
    }
  }

  private async leases(
    caller: Wait,
    names: readonly string[],
    options: ResolvedLockOptions,
  ): Promise<readonly Lease[]> {
    caller.throwIfCancelled();
    const { backend } = caller;
    const { contenders } = backend;
    if (options.retry && (names.length === 1 || backend.calls.store.acquireSeveral)) {
      return [await acquireLease(contenders, names, options, caller)];
    }
    if (names.length > 1) return new SeveralNames(contenders, names, options, caller).take();
    return [await contenders.take(names[0] as string, options, caller)];
  }

  hold(wait: Wait, under: Lease | readonly HeldPart[]): HeldLock {
    if (wait.first) wait.asksForName();
    const hold = new HeldLock(wait.names, under, this, wait.request, wait);
    this.live.add(hold);
    // It keeps the process alive until the end of its hold.
    this.waits.remove(wait);
    wait.abortListener?.leave();
    if (holdsAreObserved()) publishAcquired(hold, wait);
    return hold;
  }

  /** The call waits no more. */
  settled(wait: Wait): void {
    if (this.waits.remove(wait)) mayEnd();
    wait.abortListener?.leave();
  }

  private get isIdle(): boolean {
    return this.all().every((hold) => this.asking.has(hold));
  }

  refuses(inside: boolean): boolean {
    return this.closed || (this.closing && !inside);
  }

  private whenIdle(): Promise<void> {
    if (this.isIdle) return Promise.resolve();
    return new Promise((resolve) => this.idle.push(resolve));
  }
}

/** What a hold has under it: a single lease of its own by itself. */
function own(parts: readonly HeldPart[]): Lease | readonly HeldPart[] {
  const [first] = parts;
  return first && parts.length === 1 && !first.endTurn ? first.lease : parts;
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
