import type { EnqueueRequest, QueueAnswer } from '../../contracts/lock-queue.js';
import type { Pending } from '../../contracts/store.js';
import { isThrown } from '../../errors/limited-log.js';
import { LockTimeoutError, type LockBackendError } from '../../errors/lock-errors.js';
import { lockChannels, type LockCall } from '../../events/lock-channels.js';
import type { Lease } from '../grant/lease.js';
import type { BackendCalls } from '../grant/store.js';
import { listenToAbort } from '../../timing/abort-listeners.js';
import { Place } from '../../timing/brief-collections.js';
import { type Expiring, type Timeout, type Timeouts, onceRead } from '../../timing/clock.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { Contender } from './line.js';
import type { QueueingBackend } from './named-backend.js';

/** The first request of a call for its name, which does something else for the call in the same step at the store. */
export interface FirstRequest {
  /** Asks as `enqueue` of the queue does. `answered`: the call needs no lock any more, and nothing was taken. */
  enqueue(request: EnqueueRequest): Pending<QueueAnswer | { readonly status: 'answered' }>;
  /**
   * What the call rejects with if the request fails, at once. Without it, the call asks again while its `wait` lasts;
   * with it, the events of locks tell of the call only once it waits for the lock or has it.
   */
  failed?(error: LockBackendError): unknown;
}

type Limited = Pick<BackendCalls, 'commandTimeout'>;

/** What learns how the wait of a caller in a queue has ended, once the caller has left the queue. */
export interface Served {
  admitted(lease: Lease): void;
  refused(error: unknown): void;
}

/** Options that have been checked against their backend, for any number of calls. */
export interface HoldRequest {
  readonly backend: QueueingBackend;
  readonly options: ResolvedLockOptions;
}

/**
 * One call that waits for its names: how long it may wait, and what may end its wait early. The clock starts when it is
 * made. It waits for one thing at a time: in the queue of a contender (`enter`), or for a promise (`until`, `sleep`).
 */
export class Caller extends Place implements Expiring {
  /** Whose queue it waits in. */
  declare list: Contender | undefined;
  /** Its wait is over, and it stays only for the answer that is under way. */
  declare overdue: boolean | undefined;
  /** The call in its events; absent while there was none. */
  declare recorded: LockCall | undefined;
  /** Its first request, until that is answered: the name is granted or busy. It rejects with it for `answered`. */
  declare first: FirstRequest | undefined;
  declare private metContention: boolean | undefined;
  /** When (monotonic, ms) the call was made. */
  readonly startedAt = performance.now();
  /** Why the wait was cancelled; absent while it was not. */
  declare cancellation: { readonly reason: unknown } | undefined;
  declare private wakes: Set<() => void> | undefined;
  /** Listens to the signal of the call. */
  declare abortListener: { leave(): void } | undefined;
  private timeout: Timeout | undefined = undefined;
  served: Served | undefined = undefined;
  /** Those of the name that it waits for now. */
  options: ResolvedLockOptions;

  constructor(
    readonly request: HoldRequest,
    readonly names: readonly string[],
  ) {
    super();
    this.before = this.after = this.list = undefined;
    const { options } = request;
    this.options = options;
    const { signal } = options;
    if (!signal) return;
    if (signal.aborted) this.cancel(signal.reason);
    else this.abortListener = listenToAbort(signal, () => this.cancel(signal.reason));
  }

  get backend(): QueueingBackend {
    return this.request.backend;
  }

  /** Whether it asks once, and leaves with whatever answer. */
  get triesOnce(): boolean {
    return this.options.wait === 0;
  }

  /** The call in its events. */
  get call(): LockCall {
    const { backend, label } = this.backend.calls.source;
    return (this.recorded ??= { keys: this.names, template: this.options.template, backend, label });
  }

  /** Whether it waits in a queue. */
  get waits(): boolean {
    return this.list !== undefined;
  }

  /** From now on it asks as any other. */
  asksForName(): void {
    const { first } = this;
    this.first = undefined;
    if (first?.failed) this.publishAttempt();
  }

  publishAttempt(): void {
    const { attempt } = lockChannels;
    if (attempt.hasSubscribers) attempt.publish({ call: this.call, wait: this.options.wait });
  }

  /** It found the name taken, by `owner` as far as the backend told. */
  meetContention(owner?: string): void {
    if (this.metContention || !lockChannels.contended.hasSubscribers) return;
    this.metContention = true;
    lockChannels.contended.publish({ call: this.call, owner: owner || undefined });
  }

  /**
   * Enters a queue, where it waits for at most the `wait` of these options. Then it tells `served`.
   */
  enter(options: ResolvedLockOptions, served: Served): void {
    this.options = options;
    const { wait } = options;
    if (this.overdue) this.overdue = false;
    const limited = wait > 0 && wait !== Infinity;
    this.timeout = limited ? this.request.backend.calls.timeouts.start(wait, this) : undefined;
    this.served = served;
  }

  expire(): void {
    this.list?.leave(this);
  }

  /** Its wait is over, and it stays for an answer that comes within `limit` ms. */
  awaitAnswer(timeouts: Timeouts, limit: number): void {
    this.overdue = true;
    this.timeout = timeouts.start(limit, this);
  }

  refuse(error: unknown): void {
    this.leaveQueue();
    this.served?.refused(error);
  }

  /** Publishes why the call ended without the lock. */
  publishRefusal(error: unknown, closing: boolean): void {
    const { timedOut, failed } = lockChannels;
    if (this.first?.failed) return;
    if (isThrown(error, LockTimeoutError)) {
      if (!timedOut.hasSubscribers) return;
      return timedOut.publish({ call: this.call, waited: this.waited(), remaining: error.remaining });
    }
    if (!failed.hasSubscribers) return;
    const reason = closing ? 'shutdown' : this.cancellation ? 'aborted' : 'backend';
    failed.publish({ call: this.call, waited: this.waited(), reason, error });
  }

  /** Milliseconds that it has waited. */
  waited(): number {
    return performance.now() - this.startedAt;
  }

  /** Milliseconds that it may still wait; 0 when its wait is over. */
  remaining(): number {
    return Math.max(0, this.startedAt + this.request.options.wait - performance.now());
  }

  /**
   * Milliseconds until its call is over: it waits for an answer under way beyond the end of its wait, but at most
   * `commandTimeout` beyond it. In whole ms, because `Timeouts` shares a timer among equal ones.
   */
  left(calls: Limited): number {
    return Math.max(0, Math.ceil(this.request.options.wait + this.commandTimeout(calls) - this.waited()));
  }

  /** Milliseconds that a request may go unanswered. */
  limitOf(calls: Limited): number {
    return Math.min(this.commandTimeout(calls), this.left(calls));
  }

  /** The `commandTimeout` of its options, or that of the module. */
  commandTimeout(calls: Limited): number {
    return this.options.commandTimeout ?? calls.commandTimeout;
  }

  /** Ends the wait: it is refused, and whatever waits on it rejects, with `reason`. */
  cancel(reason: unknown): void {
    this.cancellation ??= { reason };
    for (const wake of this.wakes ?? []) wake();
    this.list?.leave(this, this.cancellation);
  }

  throwIfCancelled(): void {
    if (this.cancellation) throw this.cancellation.reason;
  }

  /** Resolves after `ms`, at the latest when the wait is over; rejects when it is cancelled. */
  async sleep(ms: number): Promise<void> {
    await this.until(new Promise<never>(() => {}), Math.min(ms, this.remaining()));
  }

  /**
   * Settles as `promise` does; resolves to `undefined` after `limit` ms and rejects when the wait is cancelled,
   * whichever comes first.
   */
  until<T>(promise: Promise<T>, limit: number): Promise<T | undefined> {
    const wakes = (this.wakes ??= new Set());
    return new Promise<T | undefined>((resolve, reject) => {
      const finish = () => {
        clearTimeout(timer);
        wakes.delete(wake);
      };
      const wake = () => {
        finish();
        reject(this.cancellation?.reason);
      };
      const timeUp = () => onceRead(() => (finish(), resolve(undefined)));
      const timer = Number.isFinite(limit) ? setTimeout(timeUp, limit) : undefined;
      if (this.cancellation) return wake();
      wakes.add(wake);
      promise.then(
        (value) => (finish(), resolve(value)),
        (error: Error) => (finish(), reject(error)),
      );
    });
  }

  leaveQueue(): void {
    this.leave();
    this.timeout?.leave();
  }
}
