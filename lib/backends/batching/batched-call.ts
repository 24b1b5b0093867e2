import type { Pending } from '../../contracts/pending.js';

/** One call of a batch. It settles in a later turn of the event loop; call `then` in the turn that made it. */
export class BatchedCall<T> implements Pending<T> {
  private answered: ((answer: T) => void) | undefined;
  private failed: ((error: unknown) => void) | undefined;

  constructor(private readonly read: (reply: unknown) => T) {}

  then(answered: (answer: T) => void, failed: (error: unknown) => void): void {
    this.answered = answered;
    this.failed = failed;
  }

  settle(reply: unknown): void {
    if (reply instanceof Error) return this.failed?.(reply);
    let answer: T;
    try {
      answer = this.read(reply);
    } catch (error) {
      return this.failed?.(error);
    }
    return this.answered?.(answer);
  }

  fail(error: unknown): void {
    this.failed?.(error);
  }
}
