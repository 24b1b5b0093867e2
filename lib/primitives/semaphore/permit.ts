/** What one call has of a semaphore. Obtained from `SemaphoreService`. It has the shape of a `Lock`. */
export interface Permit extends AsyncDisposable {
  /** The name of the semaphore. */
  readonly key: string;
  /** How many permits it stands for. */
  readonly count: number;
  /**
   * What the store has of this grant. Holders of one process share it if the process passes the permit from one to the
   * next without a request to the store; `fencingToken` distinguishes them.
   */
  readonly owner: string;
  /**
   * A number of its own for each holder. It rises with every grant of the store, which reserves some for the callers
   * that hold the permit one after another. As several callers hold permits at once, a resource cannot refuse all
   * tokens below the highest; use it to tell holders apart.
   */
  readonly fencingToken: number;

  /**
   * Aborted with the `PermitLostError` when the permit is lost, at the latest at its local deadline, whatever the store
   * does. Reading it reads the clock, so that it is right even directly after the process was paused.
   */
  get signal(): AbortSignal;

  /** Whether the permit is still trusted. Reads the clock. */
  get held(): boolean;

  /** Milliseconds of trusted lease left, counted from before the request was sent; 0 once lost or released. */
  remaining(): number;

  /** Throws `PermitLostError` unless the permit is held: call it before a step that must not run without one. */
  assertHeld(): void;

  /**
   * Gives the permit back, or passes it on to a call of this process that waits. A second call settles as the first
   * did. While the store does not confirm, the release is repeated in the background until the lease ends; this call
   * waits only for the first attempt.
   *
   * @throws PermitLostError when it had been lost before
   */
  release(): Promise<void>;
}
