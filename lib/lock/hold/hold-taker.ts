import { LinkedList, type Place } from '../../timing/linked-list.js';
import { LockBackendError, type LockLostError } from '../../errors/lock-errors.js';
import { logOnce } from '../../errors/error-log.js';
import type { LockBackends } from '../backend/lock-backends.js';
import type { NamedBackend } from '../backend/named-backend.js';
import { requestedTtl } from '../lease/lease-clock.js';
import type { Lease, LossObserver } from '../lease/lease.js';
import { shareOneToken } from '../lease/shared-token.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { Contenders } from '../waiting/contenders.js';
import { acquireLease } from '../waiting/polling.js';
import type { QueueingBackend } from '../waiting/queueing-backend.js';
import { grantedTooLate } from '../waiting/refusals.js';
import { SeveralNames } from '../waiting/several-names.js';
import { WaitBudget } from '../waiting/wait-budget.js';
import { HeldLock, type HeldPart, type HoldObserver } from './held-lock.js';
import type { HoldContext } from './hold-context.js';
import { extendForNested, reenter, refuseToWaitForOwnHold } from './re-entry.js';

/** Options that were checked against their backend, for any number of calls. */
export interface HoldRequest {
  readonly backend: QueueingBackend;
  readonly options: ResolvedLockOptions;
}

/**
 * Takes holds: re-enters those around the caller and acquires the other names. Lists the live holds of the instance,
 * and ends them all when the application shuts down.
 */
export class HoldTaker implements LossObserver, HoldObserver {
  private readonly waits = new LinkedList<Wait>();
  /** Without the lost ones, so that a caller which never releases a lost lock leaks nothing. */
  private readonly live = new LinkedList<HeldLock>();
  private idle: (() => void)[] = [];
  /** Refuses calls outside of any hold; the present holds may end within the grace. */
  private closing = false;
  /** Refuses all calls. */
  private closed = false;

  constructor(
    private readonly backends: LockBackends,
    private readonly context: HoldContext,
  ) {}

  /** @throws LockConfigError when the backend is unknown, or cannot do what the options ask for */
  request(options: ResolvedLockOptions): HoldRequest {
    const backend = this.backends.get(options.backend);
    backend.requireSupport(options);
    return { backend, options };
  }

  /** @throws LockConfigError, LockBackendError, LockTimeoutError at once when the call cannot succeed */
  take(names: readonly string[], { backend, options }: HoldRequest): Promise<HeldLock> {
    if (names.length > 1) backend.requireSeveralNames(names);
    const inside = this.context.scope !== undefined;
    if (this.refuses(inside)) throw shuttingDown(names);
    if (inside && !options.reentrant) refuseToWaitForOwnHold(this.context, backend, names);
    const wait: Wait = { backend, names, inside, budget: new WaitBudget(options.wait, options.signal) };
    wait.place = this.waits.push(wait);
    if (inside || names.length > 1 || options.minHold > 0 || options.retry || !backend.contenders) {
      return this.takeParts(wait, options);
    }
    return this.takeOne(wait, backend.contenders, options);
  }

  /** The short way of the usual case, one name outside of any hold: it makes a single promise. */
  private takeOne(wait: Wait, contenders: Contenders, options: ResolvedLockOptions): Promise<HeldLock> {
    return new Promise((resolve, reject) => {
      const { names, budget } = wait;
      if (budget.cancelled) {
        this.settled(wait);
        budget.throwIfCancelled();
      }
      contenders.join(
        names[0] as string,
        options,
        budget,
        (lease) => {
          this.settled(wait);
          const parts: HeldPart[] = [];
          try {
            this.receive(wait, [lease], parts);
            resolve(this.hold(names, parts));
          } catch (error) {
            void lease.source.takeBack(lease, true);
            reject(error);
          }
        },
        (error) => {
          this.settled(wait);
          reject(error);
        },
      );
    });
  }

  private async takeParts(wait: Wait, options: ResolvedLockOptions): Promise<HeldLock> {
    const { backend, names, inside, budget } = wait;
    const parts: HeldPart[] = [];
    try {
      budget.throwIfCancelled();
      const missing = inside && options.reentrant ? await reenter(this.context, backend, names, budget, parts) : names;
      if (parts.length > 0) await extendForNested(parts, options);
      if (missing.length > 0) this.receive(wait, await this.leases(wait, missing, options), parts);
      if (parts.length > 1 && missing.length < names.length) {
        const limit = budget.limitOf(options.commandTimeout ?? backend.calls.commandTimeout);
        await shareOneToken(
          backend.calls,
          parts.map(({ lease }) => lease),
          limit,
        );
      }
      if (options.minHold > 0) await this.startMinHold(wait, parts, options);
      // The hold around the caller may have been lost during the waits above.
      for (const { lease } of parts) if (lease.lost) throw lease.lost;
      return this.hold(names, parts);
    } catch (error) {
      for (const { lease, endTurn } of parts) {
        if (endTurn) endTurn();
        else void lease.source.takeBack(lease, true);
      }
      throw error;
    } finally {
      this.settled(wait);
    }
  }

  private hold(names: readonly string[], parts: readonly HeldPart[]): HeldLock {
    const hold = new HeldLock(names, parts, this);
    hold.place = this.live.push(hold);
    return hold;
  }

  private settled(wait: Wait): void {
    wait.place?.leave();
    wait.budget.dispose();
  }

  leaseLost(error: LockLostError): void {
    logOnce(this.backends.logger, error);
  }

  holdOver(hold: HeldLock): void {
    if (!hold.place?.leave() || this.live.first) return;
    for (const resolve of this.idle.splice(0)) resolve();
  }

  runAs(hold: HeldLock, callback: () => void): void {
    this.context.runAs(hold, callback);
  }

  /** The live holds. */
  all(): readonly HeldLock[] {
    return this.live.toArray();
  }

  /** How many calls of this instance wait for the name. */
  waitingFor(backend: NamedBackend, name: string): number {
    let waiting = 0;
    for (const wait of this.waits.toArray()) if (wait.backend === backend && wait.names.includes(name)) waiting += 1;
    return waiting;
  }

  /** Refuses new holds, lets the present ones end within the grace, and takes the rest away. */
  async shutDown(): Promise<void> {
    this.closing = true;
    for (const { inside, names, budget } of this.waits.toArray()) if (!inside) budget.cancel(shuttingDown(names));
    const timeUp = new AbortController();
    const grace = setTimeout(() => timeUp.abort(), this.backends.options.shutdownGrace);
    await Promise.race([this.whenIdle(), new Promise((resolve) => timeUp.signal.addEventListener('abort', resolve))]);
    clearTimeout(grace);
    this.closed = true;
    for (const { names, budget } of this.waits.toArray()) budget.cancel(shuttingDown(names));
    for (const hold of this.all()) hold.takeAway();
  }

  private whenIdle(): Promise<void> {
    if (!this.live.first) return Promise.resolve();
    return new Promise((resolve) => this.idle.push(resolve));
  }

  private refuses(inside: boolean): boolean {
    return this.closed || (this.closing && !inside);
  }

  private receive({ backend, names, inside }: Wait, leases: readonly Lease[], parts: HeldPart[]): void {
    for (const lease of leases) {
      lease.observer = this;
      parts.push({ backend, lease });
    }
    if (this.refuses(inside)) throw shuttingDown(names);
  }

  private async leases(
    { backend, budget }: Wait,
    names: readonly string[],
    options: ResolvedLockOptions,
  ): Promise<readonly Lease[]> {
    budget.throwIfCancelled();
    const { contenders } = backend;
    if (!contenders || options.retry) return [await acquireLease(backend, names, options, budget)];
    if (names.length > 1) return new SeveralNames(backend, contenders, names, options, budget).take();
    return [await contenders.take(names[0] as string, options, budget)];
  }

  /** Makes each lease at the backend last for `minHold` without renewals: that of a claim may be shorter. */
  private async startMinHold(
    { names, inside }: Wait,
    parts: readonly HeldPart[],
    options: ResolvedLockOptions,
  ): Promise<void> {
    for (const { backend, lease, endTurn } of parts) {
      if (!lease.grant.lastsFor(options.minHold)) await backend.keep(lease, requestedTtl(options));
      if (!lease.held) throw (endTurn && lease.lost) ?? grantedTooLate(backend, lease.grant.names, options.ttl);
    }
    if (this.refuses(inside)) throw shuttingDown(names);
    for (const { lease } of parts) lease.grant.startMinHold(options.minHold);
  }
}

/** A call of this instance that waits for its names. */
interface Wait {
  place?: Place<Wait>;
  readonly backend: QueueingBackend;
  readonly names: readonly string[];
  /** Whether the caller is inside of a hold: while the application shuts down that hold can only end if the call ends. */
  readonly inside: boolean;
  readonly budget: WaitBudget;
}

function shuttingDown(names: readonly string[]): LockBackendError {
  return new LockBackendError(names, 'The application is shutting down: no new lock is taken');
}
