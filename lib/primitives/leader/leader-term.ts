import { AsyncLocalStorage } from 'node:async_hooks';
import type { Lock } from '../../lock/lock.js';
import type { LeaderCallbacks, LeadershipEnd } from './leadership.js';

/** What a term tells its candidacy. */
export interface TermObserver {
  /** Called at once when the term ends, before its callbacks; `lost` is why the lease was lost, if it was. */
  ended(reason: LeadershipEnd, term: number, lost: unknown): void;
  callbackFailed(callback: 'onElected' | 'onLost', error: unknown): void;
}

/** The innermost term whose work the running code is. */
const work = new AsyncLocalStorage<LeaderTerm>();

/** One leadership of this process, from the grant of the lock until all of its work has stopped. */
export class LeaderTerm {
  readonly number: number;
  /** Settles when the term has ended and nothing of it runs any more. */
  readonly over: Promise<LeadershipEnd>;
  private readonly controller = new AbortController();
  private readonly listeners = new Set<LeaderCallbacks>();
  /** Callbacks and calls that have not settled. */
  private readonly running = new Set<Promise<unknown>>();
  private settle: (reason: LeadershipEnd) => void = () => {};
  private reason: LeadershipEnd | undefined;

  constructor(
    private readonly lock: Lock,
    private readonly observer: TermObserver,
  ) {
    this.number = lock.fencingToken;
    this.over = new Promise((resolve) => (this.settle = resolve));
  }

  begin(listeners: Iterable<LeaderCallbacks>): void {
    const { signal } = this.lock;
    // The process may have been paused since the grant.
    if (signal.aborted) return this.end('lost');
    signal.addEventListener('abort', () => this.end('lost'), { once: true });
    for (const listener of listeners) this.add(listener);
  }

  /** Reads the clock. */
  get isOver(): boolean {
    return this.reason !== undefined || !this.lock.held;
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Whether the running code is work of this term, for which its end waits. */
  get isAround(): boolean {
    return work.getStore() === this;
  }

  /** Calls `onElected` now, and `onLost` at the end. */
  add(listener: LeaderCallbacks): void {
    if (this.reason !== undefined) return;
    this.listeners.add(listener);
    this.call(listener, 'onElected', this.controller.signal, (error) => {
      if (this.reason !== undefined && this.isAbort(error)) return;
      this.observer.callbackFailed('onElected', error);
      this.end('failed');
    });
  }

  /** @throws LockLostError when the lease was lost before `body` ended */
  async run<T>(body: (signal: AbortSignal, term: number) => Promise<T>): Promise<T> {
    const call = work.run(this, async () => body(this.signal, this.number));
    this.track(call);
    const result = await call;
    this.lock.signal.throwIfAborted();
    return result;
  }

  end(reason: LeadershipEnd): void {
    if (this.reason !== undefined) return;
    this.reason = reason;
    const lost: unknown = reason === 'lost' ? this.lock.signal.reason : undefined;
    this.observer.ended(reason, this.number, lost);
    this.controller.abort(lost);
    for (const listener of this.listeners) {
      this.call(listener, 'onLost', reason, (error) => this.observer.callbackFailed('onLost', error));
    }
    void this.whenIdle().then(() => this.settle(reason));
  }

  private call(
    listener: LeaderCallbacks,
    callback: 'onElected' | 'onLost',
    argument: AbortSignal | LeadershipEnd,
    failed: (error: unknown) => void,
  ): void {
    const called = async () => {
      await (listener[callback] as ((argument: unknown, term: number) => unknown) | undefined)?.call(
        listener,
        argument,
        this.number,
      );
    };
    this.track(work.run(this, called).catch(failed));
  }

  /** Whether a callback threw it because the signal was aborted. */
  private isAbort(error: unknown): boolean {
    return error === this.signal.reason || (error instanceof Error && error.name === 'AbortError');
  }

  private track(running: Promise<unknown>): void {
    const tracked = running.then(
      () => {},
      () => {},
    );
    this.running.add(tracked);
    void tracked.then(() => this.running.delete(tracked));
  }

  private async whenIdle(): Promise<void> {
    while (this.running.size > 0) await Promise.all(this.running);
  }
}
