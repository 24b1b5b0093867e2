/** How long one caller may wait, and what may end its wait early. The clock starts when it is made. */
export class WaitBudget {
  private readonly startedAt = performance.now();
  /** Called when the wait is cancelled. */
  onCancel: ((reason: unknown) => void) | undefined;
  private cancellation: { reason: unknown } | undefined;
  private readonly wakes = new Set<() => void>();
  private readonly onAbort = () => this.cancel(this.signal?.reason);

  constructor(
    readonly wait: number,
    private readonly signal?: AbortSignal,
  ) {
    if (signal?.aborted) this.cancel(signal.reason);
    else signal?.addEventListener('abort', this.onAbort, { once: true });
  }

  /** Milliseconds that the caller has waited. */
  waited(): number {
    return performance.now() - this.startedAt;
  }

  /** Milliseconds that the caller may still wait; 0 when the time is over. */
  remaining(): number {
    return Math.max(0, this.wait - this.waited());
  }

  /** Ends the wait: whatever waits on this budget rejects with `reason`. */
  cancel(reason: unknown): void {
    this.cancellation ??= { reason };
    for (const wake of this.wakes) wake();
    this.onCancel?.(this.cancellation.reason);
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
    return new Promise<T | undefined>((resolve, reject) => {
      const finish = () => {
        clearTimeout(timer);
        this.wakes.delete(wake);
      };
      const wake = () => {
        finish();
        reject(this.cancellation?.reason);
      };
      const timer = Number.isFinite(limit) ? setTimeout(() => (finish(), resolve(undefined)), limit) : undefined;
      if (this.cancellation) return wake();
      this.wakes.add(wake);
      promise.then(
        (value) => (finish(), resolve(value)),
        (error: Error) => (finish(), reject(error)),
      );
    });
  }

  /** Lets go of the caller's signal. */
  dispose(): void {
    this.signal?.removeEventListener('abort', this.onAbort);
  }
}
