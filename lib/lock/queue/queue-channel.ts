import type { LockQueue, QueueListener } from '../../contracts/lock-queue.js';
import type { BackendCalls } from '../backend/backend-calls.js';

/** How long (ms) after a failure the channel is not opened again. */
const PAUSE_AFTER_FAILURE = 1_000;

/**
 * The channel on which the backend sends messages to this process. Waiters save time by messages and never depend on
 * them: while the channel cannot be opened, they wait in the queue all the same, and learn of a grant by heartbeats.
 */
export class QueueChannel {
  isOpen = false;
  /** Whether it was opened, or that has failed once: a ticket may wait in the queue from then on. */
  tried = false;
  private opening: Promise<void> | undefined;
  private failedAt = -Infinity;

  constructor(
    private readonly calls: BackendCalls,
    private readonly queue: LockQueue,
    private readonly listener: QueueListener,
  ) {}

  /** Resolves when the channel is open, or could not be opened in time. */
  open(): Promise<void> {
    if (this.isOpen || performance.now() - this.failedAt < PAUSE_AFTER_FAILURE) return Promise.resolve();
    return (this.opening ??= this.tryToOpen());
  }

  close(): void {
    this.queue.unlisten?.(this.listener);
  }

  private async tryToOpen(): Promise<void> {
    try {
      await this.calls.bounded('acquire', [], this.queue.listen(this.listener));
      this.isOpen = true;
    } catch {
      this.failedAt = performance.now();
    }
    this.tried = true;
    this.opening = undefined;
  }
}
