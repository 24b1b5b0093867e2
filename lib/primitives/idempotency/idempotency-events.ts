import type { IdempotencyRecord } from '../../contracts/primitives/idempotency-store.js';
import { LockBackendError } from '../../errors/lock-errors.js';
import { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import { idempotencyChannels, type IdempotencyEvent } from '../../events/idempotency-channels.js';
import type { LockSource } from '../../events/lock-channels.js';

const { ran, failed, repeated, conflict, busy, unavailable } = idempotencyChannels;

/** Publishes what happens to one call, to those who listen. */
export class IdempotentCallEvents {
  constructor(
    private readonly key: string,
    private readonly template: string | undefined,
    private readonly source: LockSource,
  ) {}

  repeated({ attempt }: IdempotencyRecord): void {
    if (repeated.hasSubscribers) repeated.publish({ ...this.event, attempt });
  }

  conflict(): void {
    if (conflict.hasSubscribers) conflict.publish(this.event);
  }

  busy(waited: number): void {
    if (busy.hasSubscribers) busy.publish({ ...this.event, waited });
  }

  unavailable(error: unknown): void {
    if (unavailable.hasSubscribers) unavailable.publish({ ...this.event, error });
  }

  /** Publishes how the attempt ends. */
  attempt({ attempt }: IdempotencyRecord, run: () => Promise<unknown>): Promise<unknown> {
    return ran.hasSubscribers || failed.hasSubscribers ? this.observed(attempt, run) : run();
  }

  private async observed(attempt: number, run: () => Promise<unknown>): Promise<unknown> {
    const begunAt = performance.now();
    try {
      const value = await run();
      ran.publish({ ...this.event, attempt, took: performance.now() - begunAt });
      return value;
    } catch (error) {
      failed.publish({ ...this.event, attempt, took: performance.now() - begunAt, error });
      throw error;
    }
  }

  private get event(): IdempotencyEvent {
    const { key, template, source } = this;
    return { key, template, backend: source.backend, label: source.label };
  }
}

export function isBackendError(error: unknown): boolean {
  return error instanceof PrimitiveBackendError || error instanceof LockBackendError;
}
