import type { Observable } from 'rxjs';

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
