import { BoundedCall, BoundedCalls, type CircuitBreaker } from '../calls/bounded-call.js';
import type { LockBackend } from '../contracts/lock-backend.js';
import { isPrimitiveStoreProvider, type PrimitiveStores } from '../contracts/primitive-stores.js';
import type { Pending } from '../contracts/store.js';
import { PrimitiveConfigError, PrimitiveBackendError, PrimitiveKeyError } from '../errors/primitive-errors.js';
import type { LockSource } from '../events/lock-channels.js';
import { whyNotAName } from '../keys/key-part.js';
import type { BackendCalls } from '../lock/grant/store.js';
import type { LockBackends } from '../lock/line/lock-backends.js';
import { type Ticks, Timeouts } from '../timing/clock.js';

/** The stores of the primitives at one backend, and the calls to them. */
export interface PrimitiveHome {
  readonly stores: PrimitiveStores;
  readonly calls: PrimitiveCalls;
  readonly backend: LockBackend;
  readonly prefix: string | undefined;
  /** Where its events come from. */
  readonly source: LockSource;
}

/** What the primitives of one module instance share: their stores, opened at the first use. */
export class PrimitiveRuntime {
  private readonly homes = new Map<string | undefined, PrimitiveHome>();
  /** Whether the application has ended. */
  isStopped = false;

  constructor(readonly backends: LockBackends) {
    backends.whenStopping(() => this.stop());
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
      calls: new PrimitiveCalls(calls, commandTimeout),
      backend: calls.backend,
      prefix,
      source: calls.source,
    };
    this.homes.set(backend, home);
    return home;
  }

  private async stop(): Promise<void> {
    this.isStopped = true;
    const closing = Array.from(this.homes.values(), async ({ stores }) => stores.close());
    for (const end of await Promise.allSettled(closing)) if (end.status === 'rejected') throw end.reason;
  }
}

interface CallOptions<T> {
  readonly late?: (answer: T) => void;
  /** In ms; `commandTimeout` by default. */
  readonly limit?: number;
  /** Gives back what the backend granted before: also to one that refuses by now. */
  readonly givesBack?: boolean;
}

/** The calls of the primitives to one backend. Each fails after `commandTimeout` ms without an answer. */
export class PrimitiveCalls extends BoundedCalls<string, PrimitiveBackendError> {
  readonly breaker: CircuitBreaker | undefined = undefined;
  /** A standstill of this process does not count, so that an answer that has arrived is always read. */
  readonly limits = new Timeouts({ countsStandstills: false });
  /** When what recurs is sent to the backend: those of its locks. */
  readonly ticks: Ticks;
  /** As of its locks. */
  readonly whenConnected: Set<() => void>;

  constructor(
    { backend, checks, ticks, whenConnected }: BackendCalls,
    readonly commandTimeout: number,
  ) {
    super(backend, checks);
    this.ticks = ticks;
    this.whenConnected = whenConnected;
  }

  /**
   * `operation` as in "take of a permit"; `key` is the one concerned. An answer after the time limit goes to `late`:
   * the call may have taken what nobody wants any more.
   *
   * @throws PrimitiveBackendError when the backend fails, or does not answer within `limit` ms
   */
  run<T>(operation: string, key: string, call: () => Pending<T>, options: CallOptions<T> = {}): Promise<T> {
    return new Promise((resolve, reject) => this.ask(operation, key, call, resolve, reject, options));
  }

  /** As `run`, without a promise of its own: with `AsyncLocalStorage` each one takes time. */
  ask<T>(
    operation: string,
    key: string,
    call: () => Pending<T>,
    answered: (answer: T) => void,
    failed: (error: PrimitiveBackendError) => void,
    { late, limit = this.commandTimeout, givesBack = false }: CallOptions<T> = {},
  ): void {
    if (this.breaker?.isOpen) return failed(this.failure(operation, key, 'the circuit breaker is open'));
    void new BoundedCall(this, operation, key, limit, answered, failed, late, this.begin(call, givesBack));
  }

  failure(operation: string, key: string, why: string, cause?: unknown): PrimitiveBackendError {
    return new PrimitiveBackendError(`The ${operation} "${key}" failed: ${why}`, [key], cause);
  }
}

/**
 * Checks a name that no arguments are part of. `what` is named in errors, as in "scheduled job"; `byHand` is the call
 * that takes a name of the caller's making.
 *
 * @throws PrimitiveKeyError
 */
export function requireFixedName(name: string, what: string, byHand: string): void {
  const why = whyNotAName(name);
  if (why) throw new PrimitiveKeyError(`The name of the ${what} is ${why}; give a string of one character or more`);
  if (!/<#?(\d|this\b)[^>]*>/.test(name)) return;
  throw new PrimitiveKeyError(
    `The name of the ${what} is "${name}", but it is fixed: nothing replaces a placeholder in it. For a name of the ` +
      `arguments, call ${byHand}`,
    [name],
  );
}
