import { AsyncLocalStorage } from 'node:async_hooks';
import type { LockLostError } from '../../errors/lock-errors.js';

/** The `AbortSignal` of a lease. Made when the holder first reads it, in whose async context its listeners run. */
export class LossSignal {
  private readonly controller = new AbortController();
  /** The async context (of all storages) in which it was made. */
  private context: ReturnType<typeof AsyncLocalStorage.snapshot> | undefined = AsyncLocalStorage.snapshot();

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Aborts it in the holder's async context rather than in that of the timer or answer that found the loss. */
  abort(error: LockLostError, runAsHolder: (callback: () => void) => void): void {
    const { context } = this;
    this.context = undefined;
    const abort = () => runAsHolder(() => this.controller.abort(error));
    if (context) context(abort);
    else abort();
  }

  /** It is never aborted from now on. */
  settle(): void {
    this.context = undefined;
  }
}
