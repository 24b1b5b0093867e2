import { acquireLease, grantedTooLate } from '../waiting/polling.js';
import { HeldLock, type HeldPart } from './held-lock.js';
import type { HoldContext } from './hold-context.js';
import type { HoldRegistry } from './hold-registry.js';
import type { Lease, LossObserver } from '../lease/lease.js';
import { LinkedList, type Place } from '../../timing/linked-list.js';
import type { LockBackends } from '../backend/lock-backends.js';
import { LockBackendError, LockTimeoutError, type LockLostError } from '../../errors/lock-errors.js';
import { logOnce } from '../../errors/error-log.js';
import { leaseOf, type ResolvedLockOptions } from '../options/lock-options.js';
import type { NamedBackend } from '../backend/named-backend.js';
import type { LockQueues } from '../waiting/lock-queues.js';
import type { QueueingBackend } from '../waiting/queueing-backend.js';
import { SeveralNames } from '../waiting/several-names.js';
import { showOneToken } from '../lease/shared-token.js';
import { WaitBudget } from '../waiting/wait-budget.js';

/** Takes holds: re-enters those around the caller, acquires the rest, and refuses new ones once shut down. */
export class HoldTaker implements LossObserver {
  private readonly waits = new LinkedList<Wait>();
  private closing = false;
  /** Also for those inside of a hold: it was taken away. */
  private closed = false;

  constructor(
    private readonly backends: LockBackends,
    private readonly registry: HoldRegistry,
    private readonly context: HoldContext,
  ) {}

  /** @throws LockConfigError, LockBackendError at once when it is not even tried */
  take(names: readonly string[], options: ResolvedLockOptions): Promise<HeldLock> {
    const backend = this.backends.get(options.backend);
    backend.requireSupport(names, options);
    const inside = this.context.inside;
    if (this.refuses(inside)) throw shuttingDown(names);
    if (inside && !options.reentrant) this.refuseToWaitForItself(backend, names);
    const wait: Wait = { backend, names, inside, budget: new WaitBudget(options.wait, options.signal) };
    wait.place = this.waits.push(wait);
    if (inside || names.length > 1 || options.minHold > 0 || options.retry || !backend.queues)
      return this.takeParts(wait, options);
    return this.takeQueued(wait, backend.queues, options);
  }

  /** The usual case of `takeParts`: one name, that no hold around the caller can have. */
  private takeQueued(wait: Wait, queues: LockQueues, options: ResolvedLockOptions): Promise<HeldLock> {
    return new Promise((resolve, reject) => {
      const { names, budget } = wait;
      if (budget.cancelled) {
        this.settled(wait);
        budget.throwIfCancelled();
      }
      queues.join(
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
            void lease.keeper.takeBack(lease, true);
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
    const { backend, names, inside } = wait;
    const parts: HeldPart[] = [];
    try {
      wait.budget.throwIfCancelled();
      const missing = inside && options.reentrant ? await this.reenter(wait, parts) : names;
      if (parts.length > 0) await this.lengthen(parts, options);
      if (missing.length > 0) this.receive(wait, await this.leases(wait, missing, options), parts);
      if (parts.length > 1 && missing.length < names.length) {
        const { commandTimeout = backend.calls.commandTimeout } = options;
        await showOneToken(backend, parts, wait.budget.limitOf(commandTimeout));
      }
      if (options.minHold > 0) await this.keep(wait, parts, options);
      // The hold around the caller may have been lost while the rest was waited for.
      for (const { lease } of parts) if (lease.lost) throw lease.lost;
      return this.hold(names, parts);
    } catch (error) {
      for (const { lease, endTurn } of parts) {
        if (endTurn) endTurn();
        else void lease.keeper.takeBack(lease, true);
      }
      throw error;
    } finally {
      this.settled(wait);
    }
  }

  private hold(names: readonly string[], parts: readonly HeldPart[]): HeldLock {
    const hold = new HeldLock(names, parts, this.registry);
    this.registry.add(hold);
    return hold;
  }

  private settled(wait: Wait): void {
    wait.place?.leave();
    wait.budget.dispose();
  }

  leaseLost(error: LockLostError): void {
    logOnce(this.backends.logger, error);
  }

  waitingFor(backend: NamedBackend, name: string): number {
    let waiting = 0;
    for (const wait of this.waits.toArray()) if (wait.backend === backend && wait.names.includes(name)) waiting += 1;
    return waiting;
  }

  /** Refuses new holds, lets the present ones finish within the grace, and takes the rest away. */
  async shutDown(): Promise<void> {
    this.closing = true;
    for (const { inside, names, budget } of this.waits.toArray()) if (!inside) budget.cancel(shuttingDown(names));
    const timeUp = new AbortController();
    const grace = setTimeout(() => timeUp.abort(), this.backends.options.shutdownGrace);
    await Promise.race([
      this.registry.whenIdle(),
      new Promise((resolve) => timeUp.signal.addEventListener('abort', resolve)),
    ]);
    clearTimeout(grace);
    this.closed = true;
    for (const { names, budget } of this.waits.toArray()) budget.cancel(shuttingDown(names));
    for (const hold of this.registry.all()) hold.takeAway();
  }

  private refuses(inside: boolean): boolean {
    return this.closed || (this.closing && !inside);
  }

  /**
   * A call inside of a hold that must not re-enter it could only wait until that hold ends, which waits for the call.
   */
  private refuseToWaitForItself(backend: NamedBackend, names: readonly string[]): void {
    for (const name of names) {
      const hold = this.context.covering(backend, name)?.hold;
      if (!hold?.held) continue;
      throw new LockTimeoutError(names, {
        waited: 0,
        remaining: hold.remaining(),
        owner: hold.owner,
        remedy:
          `The call runs inside of the hold of "${name}" and would wait for itself: leave "reentrant: false" out, or call ` +
          'it when that hold has ended',
      });
    }
  }

  /** Takes the turn of each name that a hold around the caller has. Answers the names that none has. */
  private async reenter({ backend, names, budget }: Wait, parts: HeldPart[]): Promise<readonly string[]> {
    const missing: string[] = [];
    for (const name of names) {
      const part = await this.reenterOne(backend, name, budget);
      if (part) parts.push(part);
      else missing.push(name);
    }
    return missing;
  }

  private async reenterOne(backend: NamedBackend, name: string, budget: WaitBudget): Promise<HeldPart | undefined> {
    for (;;) {
      const scope = this.context.covering(backend, name);
      const part = scope?.hold?.partOf(backend, name);
      if (!scope || !part) return undefined;
      const endTurn = await scope.takeTurn(name, budget);
      if (!endTurn) continue;
      if (!part.lease.lost) return { backend, lease: part.lease, endTurn };
      endTurn();
      throw part.lease.lost;
    }
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
    const { queues } = backend;
    if (!queues || options.retry) return [await acquireLease(backend, names, options, budget)];
    if (names.length > 1) return new SeveralNames(backend, queues, names, options, budget).take();
    return [await queues.take(names[0] as string, options, budget)];
  }

  /** The backend must keep the names by itself for so long: they may have been handed over for less. */
  private async keep({ names, inside }: Wait, parts: readonly HeldPart[], options: ResolvedLockOptions): Promise<void> {
    for (const { backend, lease, endTurn } of parts) {
      if (!lease.grant.outlasts(options.minHold)) await backend.keep(lease, leaseOf(options));
      if (!lease.held) throw (endTurn && lease.lost) ?? grantedTooLate(backend, lease.grant.names, options.ttl);
    }
    if (this.refuses(inside)) throw shuttingDown(names);
    for (const { lease } of parts) lease.grant.keepFor(options.minHold);
  }

  /** A nested hold that asks for more than is left of a lease which nobody renews gets it. */
  private async lengthen(parts: readonly HeldPart[], { ttl }: ResolvedLockOptions): Promise<void> {
    for (const { backend, lease } of parts) {
      if (lease.options.renewal || lease.remaining() >= ttl) continue;
      await backend.extend(lease, ttl);
      if (lease.lost) throw lease.lost;
    }
  }
}

interface Wait {
  place?: Place<Wait>;
  readonly backend: QueueingBackend;
  readonly names: readonly string[];
  /** Whether the caller is inside a hold already: it may go on while others are refused, or the hold could not end. */
  readonly inside: boolean;
  readonly budget: WaitBudget;
}

function shuttingDown(names: readonly string[]): LockBackendError {
  return new LockBackendError(names, 'The application is shutting down: no new lock is taken');
}
