import type { EnqueueRequest, QueueAnswer } from '../../contracts/lock-queue.js';
import type { Pending } from '../../contracts/store.js';
import type { LockBackendError } from '../../errors/lock-errors.js';
import { lockChannels, type LockCall, type LockSource } from '../../events/lock-channels.js';
import type { Lease } from '../grant/lease.js';
import type { BackendCalls } from '../grant/store.js';
import { listenToAbort } from '../../timing/abort-listeners.js';
import type { Place } from '../../timing/brief-collections.js';
import { onceRead } from '../../timing/clock.js';
import type { Expiring, Timeout, Timeouts } from '../../timing/timeouts.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import type { Contender } from './line.js';

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

/**
 * One call that waits for its names: how long it may wait, and what may end its wait early. The clock starts when it is
 * made. It waits for one thing at a time: in the queue of a contender (`enter`), or for a promise (`until`, `sleep`).
 */
export class Caller implements Expiring {
  /** Its place in the queue that it entered. */
  place: Place<Caller> | undefined;
  /** Whether it asks once, and leaves with whatever answer. */
  triesOnce = false;
  /** Its wait is over, and it stays only for the answer that is under way. */
  overdue = false;
  /** The call in its events; `undefined` while there was none. */
  recorded: LockCall | undefined;
  /** Its first request, until that is answered: the name is granted or busy. It rejects with it for `answered`. */
  first: FirstRequest | undefined;
  private metContention = false;
  /** When (monotonic, ms) the call was made. */
  readonly startedAt = performance.now();
  private readonly wait: number;
  /** Why the wait was cancelled; `undefined` while it was not. */
  cancellation: { readonly reason: unknown } | undefined;
  private wakes: Set<() => void> | undefined;
  /** Listens to the signal of the call. */
  abortListener: { leave(): void } | undefined;
  /** Whose queue it waits in. */
  private contender: Contender | undefined;
  private timeout: Timeout | undefined;
  /** What gets the lease, once the caller has left the queue. */
  onAdmitted: ((lease: Lease) => void) | undefined;
  private onRefused: ((error: unknown) => void) | undefined;

  /** `options` are those of the name that it waits for now. */
  constructor(
    public options: ResolvedLockOptions,
    private readonly names: readonly string[],
    private readonly source: LockSource,
  ) {
    const { wait, signal } = options;
    this.wait = wait;
    if (!signal) return;
    if (signal.aborted) this.cancel(signal.reason);
    else this.abortListener = listenToAbort(signal, () => this.cancel(signal.reason));
  }

  /** The call in its events. */
  get call(): LockCall {
    const { backend, label } = this.source;
    return (this.recorded ??= { keys: this.names, template: this.options.template, backend, label });
  }

  /** Whether it waits in a queue. */
  get waits(): boolean {
    return this.contender !== undefined;
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
   * Enters the queue of `contender`, where it waits for at most the `wait` of its options. Then one of the two
   * functions is called.
   */
  enter(
    contender: Contender,
    options: ResolvedLockOptions,
    onAdmitted: (lease: Lease) => void,
    onRefused: (error: unknown) => void,
  ): void {
    this.options = options;
    const { wait } = options;
    this.triesOnce = wait === 0;
    this.contender = contender;
    this.overdue = false;
    const limited = wait > 0 && wait !== Infinity;
    this.timeout = limited ? contender.backend.calls.timeouts.start(wait, this) : undefined;
    this.onAdmitted = onAdmitted;
    this.onRefused = onRefused;
  }

  expire(): void {
    this.contender?.leave(this);
  }

  /** Its wait is over, and it stays for an answer that comes within `limit` ms. */
  awaitAnswer(timeouts: Timeouts, limit: number): void {
    this.overdue = true;
    this.timeout = timeouts.start(limit, this);
  }

  refuse(error: unknown): void {
    const { onRefused } = this;
    this.leaveQueue();
    onRefused?.(error);
  }

  /** Milliseconds that it has waited. */
  waited(): number {
    return performance.now() - this.startedAt;
  }

  /** Milliseconds that it may still wait; 0 when its wait is over. */
  remaining(): number {
    return Math.max(0, this.startedAt + this.wait - performance.now());
  }

  /**
   * Milliseconds until its call is over: it waits for an answer under way beyond the end of its wait, but at most
   * `commandTimeout` beyond it. In whole ms, because `Timeouts` shares a timer among equal ones.
   */
  left(calls: Limited): number {
    return Math.max(0, Math.ceil(this.wait + this.commandTimeout(calls) - this.waited()));
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
    this.contender?.leave(this, this.cancellation);
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
    this.place?.leave();
    this.timeout?.leave();
    this.contender = undefined;
  }
}
