import { AsyncLocalStorage } from 'node:async_hooks';
import type { Observable } from 'rxjs';
import type { Lock } from '../../lock/hold/lock.js';
import type { StandingCandidacy } from './standing-candidacy.js';

/** One process as a candidate for one leadership. Made by `LeaderElection.join`. */
export interface Candidacy {
  readonly name: string;
  /**
   * Whether this process leads, as far as it can know. Reads the clock: false as soon as the lease may have ended, even
   * directly after the process was paused.
   */
  get isLeader(): boolean;
  /** The term of this process while it leads. Send it to the protected resource with each read and write. */
  get term(): number | undefined;
  /** Aborts when the present term of this process ends; `undefined` while it does not lead. */
  get signal(): AbortSignal | undefined;
  /** Emits the present state to each new subscriber, then each change. Completes after `leave()`. */
  readonly leadership: Observable<Leadership>;
  /** Resolves when the first attempt has been answered or has failed: whether this process leads is known. */
  readonly answered: Promise<void>;
  /**
   * Runs `body` while this process leads. The end of the term waits for it, unless the lease is lost.
   *
   * @throws NotLeaderError when this process does not lead; `body` did not run
   * @throws LockLostError when the lease was lost before `body` ended; how much took effect is unknown
   */
  run<T>(body: (signal: AbortSignal, term: number) => Promise<T>): Promise<T>;
  /**
   * Ends the present term, hands the leadership to the next candidate that waits, and stands again after a second.
   * Settles when the leadership is handed over; inside of `onElected`, `onLost` and `run`, for which the hand-over
   * waits, as soon as the term has ended. Does nothing while this process does not lead.
   */
  resign(): Promise<void>;
  /** As `resign`, for good: this process no longer stands. `join` makes a new candidacy. */
  leave(): Promise<void>;
}

/** Whether this process leads, and since which term. */
export type Leadership =
  | {
      readonly isLeader: true;
      /** The fencing token of the leadership: greater for each leader of that name, in whichever process. */
      readonly term: number;
    }
  | {
      readonly isLeader: false;
      /** Why it no longer leads; absent before its first term. */
      readonly reason?: LeadershipEnd;
    };

/**
 * Why a term ended.
 * - `lost`: the lease could not be renewed in time, or the lock was taken away. Another process may lead already.
 * - `resigned`: `resign()` was called.
 * - `left`: `leave()` was called, or the application ends.
 * - `failed`: `onElected` threw.
 */
export type LeadershipEnd = 'lost' | 'resigned' | 'left' | 'failed';

/** What a candidate does when it is elected, and when its term ends. */
export interface LeaderCallbacks {
  /**
   * Called at the begin of each term. `signal` aborts when the term ends; stop all work of the leader then. If the
   * function returns, the term goes on. If it throws, the error is logged, the term ends, and the process stands again
   * after a pause.
   *
   * The next leader is elected once its promise has settled, unless the lease was lost.
   */
  onElected?(signal: AbortSignal, term: number): void | Promise<void>;
  /** Called when a term has ended, right after its signal. An error is logged. */
  onLost?(reason: LeadershipEnd, term: number): void | Promise<void>;
}

/** The innermost term whose work the running code is. */
const work = new AsyncLocalStorage<LeaderTerm>();

/** The lock of the innermost term whose work the running code is. */
export function locksAround(): readonly Lock[] {
  const term = work.getStore();
  return term ? [term.lock] : [];
}

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
    readonly lock: Lock,
    private readonly candidacy: StandingCandidacy,
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
      this.end('failed');
      this.candidacy.callbackFailed('onElected', error);
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
    this.candidacy.ended(reason, this.number, lost);
    this.controller.abort(lost);
    for (const listener of this.listeners) {
      this.call(listener, 'onLost', reason, (error) => this.candidacy.callbackFailed('onLost', error));
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
