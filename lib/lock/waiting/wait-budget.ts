import { listenToAbort } from '../../timing/abort-listeners.js';
import { onceRead } from '../../timing/once-read.js';

/** Learns that a wait was cancelled. */
export interface CancellationListener {
  cancelled(reason: unknown): void;
}

/** How long one caller may wait, and what may end its wait early. The clock starts when it is made. */
export class WaitBudget {
  /** Told when the wait is cancelled. */
  listener: CancellationListener | undefined;
  private readonly startedAt = performance.now();
  private cancellation: { reason: unknown } | undefined;
  private wakes: Set<() => void> | undefined;
  private abortion: { leave(): void } | undefined;

  constructor(
    readonly wait: number,
    signal?: AbortSignal,
  ) {
    if (!signal) return;
    if (signal.aborted) this.cancel(signal.reason);
    else this.abortion = listenToAbort(signal, () => this.cancel(signal.reason));
  }

  /** Milliseconds that the caller has waited. */
  waited(): number {
    return performance.now() - this.startedAt;
  }

  /** Milliseconds that the caller may still wait; 0 when the time is over. */
  remaining(): number {
    return Math.max(0, this.wait - this.waited());
  }

  /**
   * Milliseconds that a request may go unanswered: an answer that is under way is waited for beyond the end of the
   * wait, and never longer than `commandTimeout` beyond it.
   */
  limitOf(commandTimeout: number): number {
    return Math.max(0, Math.min(commandTimeout, this.wait + commandTimeout - this.waited()));
  }

  /** Ends the wait: whatever waits on this budget rejects with `reason`. */
  cancel(reason: unknown): void {
    this.cancellation ??= { reason };
    for (const wake of this.wakes ?? []) wake();
    this.listener?.cancelled(this.cancellation.reason);
  }

  get cancelled(): boolean {
    return this.cancellation !== undefined;
  }

  throwIfCancelled(): void {
    if (this.cancellation) throw this.cancellation.reason;
  }

  /** Resolves after `ms`, at the latest when the time is over; rejects when the wait is cancelled. */
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

  /** Lets go of the caller's signal. */
  dispose(): void {
    this.abortion?.leave();
  }
}
