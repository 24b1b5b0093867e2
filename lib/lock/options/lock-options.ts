import { LONGEST_DELAY, millisecondsOf, type Duration } from '../../options/duration.js';
import { refusedOption } from '../../options/refused-option.js';
import { LockConfigError } from '../../errors/lock-errors.js';
import type { RetryStrategy } from './retry-strategy.js';

/** How one lock is taken and held. Given with a call or a decorator, over the module's `defaults`. */
export interface LockOptions {
  /**
   * The lease: how long the lock outlives a holder that died. The clock starts before the request is sent. While the
   * holder lives the watchdog renews it. At least 100 ms.
   * @default '30s'
   */
  ttl?: Duration;
  /**
   * How long to wait at most for a busy lock; the clock starts with the call. 0 is one try, `Infinity` waits for ever.
   * A request that is under way when the wait is over still decides, within `commandTimeout` from then.
   * @default '5s'; one try for `tryAcquire`
   */
  wait?: Duration;
  /**
   * How long a single request for the lock may go unanswered; the clock starts when it is sent. Then it counts as
   * failed, and while `wait` lasts another one is sent. Releases and renewals go by that of the module.
   * @default `commandTimeout` of the module
   */
  commandTimeout?: Duration;
  /**
   * The watchdog: `true` renews the lease every third of its `ttl`; `false` lets it end after `ttl`. `interval`
   * (default `ttl / 3`) counts from the send of the last confirmed renewal; `timeout` (default the lesser of
   * `commandTimeout` and `ttl / 4`) is how long one renewal may go unanswered before it is sent again.
   * @default true
   */
  renew?: boolean | RenewOptions;
  /**
   * How long until the lock is lost although its holder lives; the clock starts before the granted request was sent. A
   * nested hold keeps that of the outer one.
   * @default none
   */
  maxHold?: Duration;
  /**
   * How long the name stays taken at least, from the grant: the backend keeps it, also when the holder ends sooner or
   * dies. Above the difference of the machines' clocks it makes a scheduled job run once, however short it is. Others
   * wait, or find it busy, until then. The first lease is at least so long; a nested hold counts from its own
   * beginning.
   * @default none
   */
  minHold?: Duration;
  /**
   * Whether a call inside the scope of `withLock` or of a decorated method that holds the same name enters at once.
   * @default true
   */
  reentrant?: boolean;
  /**
   * How waiters of different processes take turns: in bounded batches, or strictly in the order of arrival, which needs
   * a backend that keeps a queue (`capabilities.serverQueue`); on another one it is refused.
   * @default 'batched'
   */
  order?: 'batched' | 'fifo';
  /**
   * Waits by trying again, at this pace, and in no order; never beyond the holder's lease nor 1 s.
   * @default none where the backend pushes: the caller waits in its queue; else exponentialBackoff({ min: 10, max: 200
   * })
   */
  retry?: RetryStrategy;
  /** Gives up the wait, which then rejects with `signal.reason`. Once the lock is held it has no effect. */
  signal?: AbortSignal;
  /** The name of one of the module's `backends`. @default the module's own */
  backend?: string;
}

/** `renew` of `LockOptions`. */
export interface RenewOptions {
  /**
   * At least 10 ms, and less than two thirds of `ttl`, so that a renewal which fails can be repeated. @default ttl / 3
   */
  interval?: Duration;
  /** @default the lesser of `commandTimeout` and `ttl / 4` */
  timeout?: Duration;
}

/** `LockOptions` checked, complete, and in ms. */
export interface ResolvedLockOptions {
  readonly ttl: number;
  readonly wait: number;
  /** Of the module where there is none. */
  readonly commandTimeout: number | undefined;
  readonly renewal: { readonly interval: number; readonly timeout: number | undefined } | undefined;
  readonly maxHold: number | undefined;
  /** 0: none. */
  readonly minHold: number;
  readonly reentrant: boolean;
  readonly order: 'batched' | 'fifo';
  readonly retry: RetryStrategy | undefined;
  readonly signal: AbortSignal | undefined;
  readonly backend: string | undefined;
}

const LEAST_TTL = 100;

const OPTION_NAMES = new Set<string>([
  'ttl',
  'wait',
  'commandTimeout',
  'renew',
  'maxHold',
  'minHold',
  'reentrant',
  'order',
  'retry',
  'signal',
  'backend',
] satisfies (keyof LockOptions)[]);

const RENEW_NAMES = new Set<string>(['interval', 'timeout'] satisfies (keyof RenewOptions)[]);

/** Checks the options and fills in the defaults. @throws LockConfigError naming the option, the value and the remedy */
export function resolveLockOptions(options: LockOptions, defaults: LockOptions = {}): ResolvedLockOptions {
  requireKnownOptions(options);
  const ttl = duration('ttl', given(options.ttl, defaults.ttl, 30_000), LEAST_TTL);
  const waits = given(options.wait, defaults.wait, 5_000);
  const wait = waits === Infinity ? Infinity : duration('wait', waits, 0);
  const answers = given(options.commandTimeout, defaults.commandTimeout);
  const commandTimeout = answers === undefined ? undefined : duration('commandTimeout', answers, 1);
  const holds = given(options.maxHold, defaults.maxHold);
  const maxHold = holds === undefined ? undefined : duration('maxHold', holds, 1);
  const keeps = given(options.minHold, defaults.minHold);
  const minHold = keeps === undefined ? 0 : duration('minHold', keeps, 1);
  const reentrant = given(options.reentrant, defaults.reentrant, true);
  const order = given(options.order, defaults.order, 'batched');
  const retry = given(options.retry, defaults.retry);
  const signal = given(options.signal, defaults.signal);
  const backend = given(options.backend, defaults.backend);
  requireOption(typeof reentrant === 'boolean', 'reentrant', reentrant, 'true or false');
  requireOption(order === 'batched' || order === 'fifo', 'order', order, "'batched' or 'fifo'");
  requireOption(
    retry === undefined || typeof retry === 'function',
    'retry',
    retry,
    'a function that returns an iterator of delays',
  );
  requireOption(signal === undefined || signal instanceof AbortSignal, 'signal', signal, 'an AbortSignal');
  requireOption(backend === undefined || typeof backend === 'string', 'backend', backend, 'the name of a backend');
  return {
    ttl,
    wait,
    commandTimeout,
    renewal: resolveRenewal(given(options.renew, defaults.renew), ttl),
    maxHold,
    minHold,
    reentrant,
    order,
    retry,
    signal,
    backend,
  };
}

/** What is `undefined` counts as not given; `null` is refused like any other value that the option does not take. */
function given<T>(value: T | undefined, otherwise: T | undefined): T | undefined;
function given<T>(value: T | undefined, otherwise: T | undefined, last: T): T;
function given<T>(value: T | undefined, otherwise: T | undefined, last?: T): T | undefined {
  if (value !== undefined) return value;
  return otherwise === undefined ? last : otherwise;
}

/**
 * Whole milliseconds from `least` to what a timer takes. @throws LockConfigError naming the option, value and remedy
 */
export function duration(option: string, value: unknown, least: number): number {
  return millisecondsOf(LockConfigError, option, value, least, LONGEST_DELAY);
}

export function requireOption(valid: boolean, option: string, value: unknown, remedy: string): void {
  if (!valid) throw refusedOption(LockConfigError, option, value, remedy);
}

function requireKnownOptions(options: LockOptions): void {
  requireOption(typeof options === 'object' && options !== null, 'options', options, 'an object of lock options');
  requireKnownNames('', options, OPTION_NAMES);
}

function requireKnownNames(prefix: string, options: object, names: ReadonlySet<string>): void {
  for (const name in options) {
    if (names.has(name)) continue;
    const known = [...names].map((each) => prefix + each).join(', ');
    throw new LockConfigError(`Unknown lock option "${prefix}${name}"; give any of ${known}`);
  }
}

function resolveRenewal(renew: LockOptions['renew'], ttl: number): ResolvedLockOptions['renewal'] {
  if (renew === false) return undefined;
  if (renew === undefined || renew === true) return { interval: ttl / 3, timeout: undefined };
  requireOption(typeof renew === 'object' && renew !== null, 'renew', renew, 'true, false or { interval, timeout }');
  requireKnownNames('renew.', renew, RENEW_NAMES);
  const interval = renew.interval === undefined ? ttl / 3 : duration('renew.interval', renew.interval, 10);
  const remedy = `less than two thirds of ttl (${ttl}), so that a renewal which fails can be repeated`;
  requireOption(interval < (ttl * 2) / 3, 'renew.interval', renew.interval, remedy);
  const timeout = renew.timeout === undefined ? undefined : duration('renew.timeout', renew.timeout, 1);
  return { interval, timeout };
}
