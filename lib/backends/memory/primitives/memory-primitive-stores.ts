import type { IdempotencyRecord } from '../../../contracts/primitives/idempotency-store.js';
import type { PrimitiveStores } from '../../../contracts/primitives/primitive-stores.js';
import { ExpiringMap } from '../expiring-map.js';
import { MemoryIdempotencyStore } from './memory-idempotency-store.js';
import { MemoryLatches } from './memory-latches.js';
import { MemoryRateLimitStore } from './memory-rate-limit-store.js';
import { MemoryRunRecords, type KnownRun } from './memory-run-records.js';
import { MemorySemaphores } from './memory-semaphores.js';

/** The state of the primitives in the memory of the process. Modules share it if they share the backend. */
export class MemoryPrimitives {
  private readonly runs = new ExpiringMap<KnownRun>();
  private readonly semaphores = new MemorySemaphores();
  private readonly latches = new MemoryLatches();
  private readonly results = new ExpiringMap<IdempotencyRecord>();
  private readonly rateLimits = new MemoryRateLimitStore();

  /** The stores of one module. */
  open(prefix: string | undefined): PrimitiveStores {
    return {
      runs: new MemoryRunRecords(this.runs, prefix),
      semaphores: this.semaphores.open(prefix),
      latches: this.latches.open(prefix),
      results: new MemoryIdempotencyStore(this.results, prefix),
      rateLimits: this.rateLimits.of(prefix),
      close: async () => {},
    };
  }
}
