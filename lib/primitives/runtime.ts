import { inspect } from 'node:util';
import { BoundedCall, BoundedCalls, type CircuitBreaker } from '../calls/bounded-call.js';
import {
  both,
  byStatus,
  checked,
  isAny,
  isAnyNumber,
  isBoolean,
  isNumber,
  isText,
  listOf,
  orAbsent,
  orNull,
  withParts,
  type Form,
  type Forms,
} from '../calls/checked-answers.js';
import type { LockBackend } from '../contracts/lock-backend.js';
import {
  isPrimitiveStoreProvider,
  type PrimitiveStores,
  type SemaphoreBeatRequest,
  type TakeRequest,
} from '../contracts/primitive-stores.js';
import type { Pending } from '../contracts/store.js';
import { PrimitiveConfigError, PrimitiveBackendError, PrimitiveKeyError } from '../errors/primitive-errors.js';
import type { LockSource } from '../events/lock-channels.js';
import { whyNotAName } from '../keys/key-part.js';
import type { BackendCalls } from '../lock/grant/store.js';
import type { LockBackends } from '../lock/line/lock-backends.js';
import { isReleased, TAKEN } from '../lock/line/named-backend.js';
import { unawaited } from '../options/option-checks.js';
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
    const stores: unknown = unawaited(calls.backend.openPrimitiveStores(prefix));
    requireStores(calls.backend.name, stores);
    const home = {
      stores: checked(stores, ANSWERS),
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

/** What a store tells of a grant, by an answer or a message. Also NaN: `PermitBid` believes no such token or lease. */
export const isPermit = withParts({ fencingToken: isAnyNumber, tokens: isAnyNumber, remaining: isAnyNumber });
const isOutlook = withParts({ nextEnd: isNumber, lastToken: isNumber });
const isWaiter = byStatus({ granted: isPermit, waiting: isAny, gone: isAny });
const waitersOf = (asked: unknown) => (asked as SemaphoreBeatRequest).waiters;

const isLatch = withParts({ count: isNumber, remaining: isNumber });

const isUse = listOf(isNumber, (asked) => (asked as TakeRequest).limits);
/** Never more than was asked for: a call is allowed for each unit. */
const isTake: Form = (answer, asked) => {
  const { least, most } = asked as TakeRequest;
  const isGranted: Form = (granted) =>
    granted === 0 || (isNumber(granted) && (granted as number) >= least && (granted as number) <= most);
  return withParts({ granted: isGranted, used: (used) => isUse(used, asked) })(answer);
};

const STATES: ReadonlySet<unknown> = new Set(['running', 'value', 'undefined', 'error', 'unkept']);
const isRecord = withParts({
  state: (state) => STATES.has(state),
  token: isNumber,
  attempt: isNumber,
  fingerprint: isText,
  payload: (payload) => Buffer.isBuffer(payload),
});
const isBegun = withParts({ begun: orAbsent(isRecord) });

const isRun = withParts({
  token: isNumber,
  by: isText,
  startedAt: isNumber,
  end: orAbsent(withParts({ at: isNumber, succeeded: isBoolean })),
  overdue: isBoolean,
});

/** The form of each answer of the stores. */
const ANSWERS: Forms = {
  semaphores: {
    acquire: byStatus({ granted: isPermit, busy: isOutlook }),
    renew: orAbsent(isNumber),
    release: withParts({ live: isBoolean, resent: isBoolean }),
    beat: (answer, asked) =>
      isOutlook(answer) && withParts({ states: (states) => listOf(isWaiter, waitersOf)(states, asked) })(answer),
    use: withParts({ permits: orAbsent(isNumber), taken: isNumber }),
  },
  latches: { define: isLatch, arrive: orAbsent(isLatch), look: orAbsent(isLatch) },
  rateLimits: {
    take: isTake,
    peek: isUse,
    reset: isAny,
    hit: withParts({ hits: isNumber, left: isNumber, blocked: isBoolean }),
  },
  results: {
    read: orNull(isRecord),
    begin: isRecord,
    keep: isBoolean,
    forget: isAny,
    enter: byStatus({
      answered: withParts({ record: isRecord }),
      granted: both(TAKEN.granted, isBegun),
      busy: TAKEN.busy,
    }),
    leave: both(isReleased, withParts({ kept: isBoolean })),
  },
  runs: {
    begin: isAny,
    end: isAny,
    enter: both(byStatus(TAKEN), withParts({ recorded: orAbsent(isBoolean) })),
    forget: isAny,
    leave: both(isReleased, withParts({ recorded: isBoolean })),
    last: orNull(isRun),
  },
};

/** @throws PrimitiveConfigError when the backend has opened something else, such as the promise of stores */
function requireStores(name: string, stores: unknown): asserts stores is PrimitiveStores {
  const missing = Object.keys(ANSWERS).find(
    (store) => !(stores as PrimitiveStores | undefined)?.[store as keyof PrimitiveStores],
  );
  if (missing === undefined) return;
  throw new PrimitiveConfigError(
    `Backend "${name}" opened no stores of primitives: openPrimitiveStores(prefix) returned ` +
      `${inspect(stores, { depth: -1 })}, which has no "${missing}"; return an object with the stores of PrimitiveStores, at once`,
  );
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
