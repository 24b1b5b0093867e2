import { typedSerializer, type CacheSerializer } from '../../cache/values/envelope.js';
import {
  abortSignal,
  callable,
  duration,
  instance,
  oneOf,
  text,
  timer,
  wholeNumber,
  type Duration,
} from '../../options/checks.js';
import { templateOf } from '../../options/fixed-options.js';
import { primitiveOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';

/** How a result is kept, and what repeats do. */
export interface IdempotencyOptions {
  /**
   * How long the result is kept, counted from when it is stored. An attempt without a result is remembered for `lease`
   * longer, counted from its begin: choose `ttl` above the longest run.
   * @default '24h'
   */
  ttl?: Duration;
  /**
   * What a call does while another one with its key runs: wait for it, and get its result (`'wait'`), or throw
   * `IdempotencyRunningError` (`'throw'`).
   * @default 'wait'
   */
  onRunning?: 'wait' | 'throw';
  /**
   * How long a call waits at most for another one that runs, counted from the call. Then it throws
   * `IdempotencyRunningError`.
   * @default `wait` of the module's `defaults`, '5s'
   */
  wait?: Duration;
  /**
   * The lease of the lock around a run: how long after the death of its process the next call may run the method. While
   * the process lives, the lock is renewed. At least 100 ms.
   * @default `ttl` of the module's `defaults`, '30s'
   */
  lease?: Duration;
  /**
   * Which errors of the method are kept and thrown to repeats, too. After any other error, the next call runs the
   * method again. An `HttpException` is kept with its status and body; of any other error the name, the message and
   * `code` are kept.
   * @default none
   */
  keepErrors?: (error: unknown) => boolean;
  /** The largest result, in bytes of its serialized form. @default 1_048_576 */
  maxBytes?: number;
  /** Turns results into bytes and back. @default typedSerializer() */
  serializer?: CacheSerializer;
  /** Makes the result for a repeat from the stored one, such as `instancesOf(Order)`. @default none */
  revive?: (stored: unknown) => unknown;
  /** The name of one of the module's `backends`: Redis or memory. @default the module's own */
  backend?: string;
}

/** The options of one call. */
export interface IdempotentRunOptions extends IdempotencyOptions {
  /**
   * What makes the request: data as `hashKey` takes it, of which a digest is kept. A repeat with other data throws
   * `IdempotencyConflictError`. Calls without a fingerprint fit all others.
   * @default none
   */
  fingerprint?: unknown;
  /** Ends the wait for another call, which then rejects with `signal.reason`. A run goes on. */
  signal?: AbortSignal | undefined;
}

/** `IdempotencyOptions` checked, complete, and in ms. */
export interface IdempotencySettings {
  readonly ttl: number;
  readonly onRunning: 'wait' | 'throw';
  /** `undefined` for that of the module. */
  readonly wait: number | undefined;
  /** `undefined` for that of the module. */
  readonly lease: number | undefined;
  readonly keepErrors: (error: unknown) => boolean;
  readonly maxBytes: number;
  readonly serializer: CacheSerializer;
  readonly revive: ((stored: unknown) => unknown) | undefined;
  readonly backend: string | undefined;
  readonly fingerprint: unknown;
  readonly signal: AbortSignal | undefined;
  /** The key template of the decorator, for events. */
  readonly template: string | undefined;
}

const setting = settingOf<IdempotencySettings>();

const IDEMPOTENCY_OPTIONS = new OptionTable<IdempotentRunOptions, IdempotencySettings>(
  primitiveOption,
  'idempotency option',
  '',
  {
    ttl: 24 * 60 * 60 * 1_000,
    onRunning: 'wait',
    wait: undefined,
    lease: undefined,
    keepErrors: () => false,
    maxBytes: 1_048_576,
    serializer: typedSerializer(),
    revive: undefined,
    backend: undefined,
    fingerprint: undefined,
    signal: undefined,
    template: undefined,
  },
  {
    ttl: setting('ttl', duration(1)),
    onRunning: setting('onRunning', oneOf('wait', 'throw')),
    wait: setting('wait', (value, option, checks) =>
      value === Infinity ? Infinity : checks.timerMilliseconds(option, value, 0),
    ),
    lease: setting('lease', timer(100)),
    keepErrors: setting('keepErrors', callable<(error: unknown) => boolean>()),
    maxBytes: setting('maxBytes', wholeNumber),
    serializer: setting('serializer', instance(isSerializer, 'an object with serialize() and deserialize()')),
    revive: setting('revive', callable<(stored: unknown) => unknown>()),
    backend: setting('backend', text('the name of a backend')),
    fingerprint: (settings, value) => {
      settings.fingerprint = value;
    },
    signal: setting('signal', abortSignal),
  },
);

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function idempotencySettings(options: IdempotentRunOptions): IdempotencySettings {
  const given = primitiveOption.object('options', options, 'an object of idempotency options, which may be empty');
  const settings = IDEMPOTENCY_OPTIONS.settings(given);
  settings.template = templateOf(given);
  return settings;
}

function isSerializer(value: unknown): value is CacheSerializer {
  const { serialize, deserialize } = (value ?? {}) as Partial<CacheSerializer>;
  return typeof serialize === 'function' && typeof deserialize === 'function';
}
