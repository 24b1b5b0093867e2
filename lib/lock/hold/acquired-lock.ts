import type { Duration } from '../../options/duration.js';
import type { HeldLock } from './held-lock.js';
import type { Lock } from '../lock.js';

/**
 * The result of `acquire`. The library refers to the hold and never to this object, so that it is garbage-collected
 * when its caller drops it; `DroppedLocks` then finds a hold that was never released.
 */
export class AcquiredLock implements Lock {
  constructor(private readonly hold: HeldLock) {}

  get keys(): readonly string[] {
    return this.hold.keys;
  }

  get owner(): string {
    return this.hold.owner;
  }

  get fencingToken(): number {
    return this.hold.fencingToken;
  }

  get signal(): AbortSignal {
    return this.hold.signal;
  }

  get held(): boolean {
    return this.hold.held;
  }

  remaining(): number {
    return this.hold.remaining();
  }

  assertHeld(): void {
    this.hold.assertHeld();
  }

  extend(ttl?: Duration): Promise<void> {
    return this.hold.extend(ttl);
  }

  release(): Promise<void> {
    return this.hold.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.hold[Symbol.asyncDispose]();
  }
}
