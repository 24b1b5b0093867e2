import { isPrimitiveStoreProvider, type PrimitiveStores } from '../contracts/primitives/primitive-stores.js';
import { PrimitiveConfigError } from '../errors/primitive-errors.js';
import type { LockSource } from '../events/lock-channels.js';
import type { LockBackends } from '../lock/backend/lock-backends.js';
import { PrimitiveCalls } from './primitive-calls.js';

/** The stores of the primitives at one backend, and the calls to them. */
export interface PrimitiveHome {
  readonly stores: PrimitiveStores;
  readonly calls: PrimitiveCalls;
  /** Where its events come from. */
  readonly source: LockSource;
}

/** What the primitives of one module instance share: their stores, opened at the first use. */
export class PrimitiveRuntime {
  private readonly homes = new Map<string | undefined, PrimitiveHome>();
  private stopped = false;

  constructor(readonly backends: LockBackends) {
    backends.whenStopping(() => this.stop());
  }

  /** Whether the application has ended. */
  get isStopped(): boolean {
    return this.stopped;
  }

  /**
   * The stores at the backend of that name; at the main one without a name. `primitive` names the asker in errors, as
   * in "Semaphores".
   *
   * @throws LockConfigError when there is no backend of that name
   * @throws PrimitiveConfigError when the backend keeps no primitives
   */
  home(primitive: string, backend?: string): PrimitiveHome {
    const present = this.homes.get(backend);
    if (present) return present;
    const { calls } = this.backends.get(backend);
    if (!isPrimitiveStoreProvider(calls.backend)) {
      throw new PrimitiveConfigError(
        `${primitive} need a backend that keeps them, and "${calls.backend.name}" does not; give RedisLockModule the option ` +
          '"redis" or "backend: memory()", or add one of them to "backends" and choose it with { backend: \'name\' }',
      );
    }
    const { prefix, commandTimeout } = this.backends.options;
    const home = {
      stores: calls.backend.openPrimitiveStores(prefix),
      calls: new PrimitiveCalls(calls.backend, commandTimeout),
      source: calls.source,
    };
    this.homes.set(backend, home);
    return home;
  }

  private async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all(Array.from(this.homes.values(), ({ stores }) => stores.close()));
  }
}
