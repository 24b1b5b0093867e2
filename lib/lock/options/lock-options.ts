import { abortSignal, callable, instance, oneOf, timer, trueOrFalse } from '../../options/checks.js';
import type { Duration } from '../../options/duration.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
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
   * wait, or find it busy, until then. The first lease is at least `minHold`; a nested hold counts from its own
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
  /** `undefined`: that of the module. */
  readonly commandTimeout: number | undefined;
  /** `renewal` is what it means for this `ttl`. */
  readonly renew: boolean | RenewSettings;
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

const setting = settingOf<ResolvedLockOptions>();

const LOCK_OPTIONS = new OptionTable<LockOptions, ResolvedLockOptions>(
  lockOption,
  'lock option',
  '',
  {
    ttl: 30_000,
    wait: 5_000,
    commandTimeout: undefined,
    renew: true,
    renewal: { interval: 10_000, timeout: undefined },
    maxHold: undefined,
    minHold: 0,
    reentrant: true,
    order: 'batched',
    retry: undefined,
    signal: undefined,
    backend: undefined,
  },
  {
    ttl: setting('ttl', timer(100)),
    wait: setting('wait', (value, option, checks) =>
      value === Infinity ? Infinity : checks.timerMilliseconds(option, value, 0),
    ),
    commandTimeout: setting('commandTimeout', timer(1)),
    renew: setting('renew', (value, option, checks) => {
      if (typeof value === 'boolean') return value;
      return RENEW_OPTIONS.settings(checks.object(option, value, 'true, false or { interval, timeout }'));
    }),
    maxHold: setting('maxHold', timer(1)),
    minHold: setting('minHold', timer(1)),
    reentrant: setting('reentrant', trueOrFalse),
    order: setting('order', oneOf('batched', 'fifo')),
    retry: setting('retry', callable<RetryStrategy>('a function that returns an iterator of delays')),
    signal: setting('signal', abortSignal),
    backend: setting(
      'backend',
      instance((value) => typeof value === 'string', 'the name of a backend'),
    ),
  },
);

interface RenewSettings {
  readonly interval: number | undefined;
  readonly timeout: number | undefined;
}

const renewSetting = settingOf<RenewSettings>();

const RENEW_OPTIONS = new OptionTable<RenewOptions, RenewSettings>(
  lockOption,
  'lock option',
  'renew.',
  { interval: undefined, timeout: undefined },
  { interval: renewSetting('interval', timer(10)), timeout: renewSetting('timeout', timer(1)) },
);

/**
 * Checks the options; those that are not given are as in `base`.
 *
 * @throws LockConfigError naming the option, the value and the remedy
 */
export function resolveLockOptions(options: LockOptions, base = LOCK_OPTIONS.defaults): ResolvedLockOptions {
  const given = lockOption.object('options', options, 'an object of lock options');
  const settings = LOCK_OPTIONS.settings(given, base);
  settings.renewal = renewalOf(settings, options.renew);
  return settings;
}

function renewalOf({ renew, ttl }: ResolvedLockOptions, given: LockOptions['renew']): ResolvedLockOptions['renewal'] {
  if (renew === false) return undefined;
  if (renew === true) return { interval: ttl / 3, timeout: undefined };
  const { interval = ttl / 3, timeout } = renew;
  const shown = typeof given === 'object' ? given.interval : interval;
  const remedy = `less than two thirds of ttl (${ttl}), so that a renewal which fails can be repeated`;
  lockOption.require(interval < (ttl * 2) / 3, 'renew.interval', shown, remedy);
  return { interval, timeout };
}
