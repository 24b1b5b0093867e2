import type { IdempotencyStore } from './idempotency-store.js';
import type { RateLimitStore } from './rate-limit-store.js';
import type { RunRecords } from './run-records.js';
import type { LatchStore } from './latch-store.js';
import type { SemaphoreStore } from './semaphore-store.js';

/**
 * Where the primitives of one module keep their state: one store for each of them. The rules of `LockBackend` hold:
 * every call may be sent twice, and rejects with the error of the client library if it could not be carried out.
 */
export interface PrimitiveStores {
  readonly runs: RunRecords;
  readonly semaphores: SemaphoreStore;
  readonly latches: LatchStore;
  /** The results of idempotent methods. */
  readonly results: IdempotencyStore;
  readonly rateLimits: RateLimitStore;
  /** Ends what the stores opened themselves, such as a connection for messages. */
  close(): Promise<void>;
}

/** A `LockBackend` that can also keep the state of primitives, in the same place as the locks. */
export interface PrimitiveStoreProvider {
  /** Opens the stores of one module. The module closes them before it closes the backend. */
  openPrimitiveStores(prefix: string | undefined): PrimitiveStores;
}

/** Whether a lock backend can also keep the state of primitives. */
export function isPrimitiveStoreProvider(backend: object): backend is PrimitiveStoreProvider {
  return typeof (backend as Partial<PrimitiveStoreProvider>).openPrimitiveStores === 'function';
}
