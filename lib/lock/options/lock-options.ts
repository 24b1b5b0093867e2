import { abortSignal, callable, oneOf, text, timer, trueOrFalse, type Duration } from '../../options/checks.js';
import { templateOf } from '../../options/fixed-options.js';
import { driftOf } from '../../timing/clock.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import type { RetryStrategy } from './retry-strategy.js';

/** What a lock is held for: to read, beside others that read, or to write, alone. */
export type LockMode = 'read' | 'write';

/** How one lock is taken and held. Given with a call or a decorator; the module's `defaults` fill in the rest. */
export interface LockOptions {
  /**
   * `'read'`: held together with others that read, never together with one that writes. `'write'`: the plain lock, held
   * alone. Needs a backend with read locks, and is refused with `minHold` and with `order: 'fifo'`.
   * @default 'write'
   */
  mode?: LockMode;
  /**
   * The lease: how long the lock outlives a holder that died. Counted from before the request is sent. While the holder
   * lives, the watchdog renews it. At least 100 ms.
   * @default '30s'
   */
  ttl?: Duration;
  /**
   * How long to wait at most for a busy lock, counted from the call. 0 tries once, `Infinity` waits for ever. A request
   * that is under way when the wait is over still decides, for at most `commandTimeout` more.
   * @default '5s'; one try for `tryAcquire`
   */
  wait?: Duration;
  /**
   * How long a single request for the lock may take, counted from when it is sent. Then it counts as failed, and
   * another one is sent while `wait` lasts. What the backend goes on refusing, as for lack of a right, is not sent
   * again. Releases and renewals use the `commandTimeout` of the module.
   * @default `commandTimeout` of the module
   */
  commandTimeout?: Duration;
  /**
   * The watchdog: `true` renews the lease every third of its `ttl`; `false` lets it end after `ttl`. `interval`
   * (default `ttl / 3`) counts from the send of the last confirmed renewal; `timeout` (default the lesser of
   * `commandTimeout` and `ttl / 4`) is how long one renewal may take before it is sent again.
   * @default true
   */
  renew?: boolean | RenewOptions;
  /**
   * How long the lock is held at most: then it is lost although its holder lives. Counted from before the granted
   * request was sent. A nested hold keeps that of the outer one. `Infinity` for none, whatever the module's `defaults`.
   * @default none
   */
  maxHold?: Duration;
  /**
   * How long the name stays taken at least, counted from the grant, even if the holder ends sooner or dies: the backend
   * keeps it. Set it above the difference of the machines' clocks to make a scheduled job run once, however short it
   * is. Others wait, or find the name busy, until then. The first lease is at least `minHold`; a nested hold counts
   * from its own beginning. 0 for none, whatever the module's `defaults`.
   * @default none
   */
  minHold?: Duration;
  /**
   * Whether a call inside the scope of `withLock` or of a decorated method that holds the same name enters at once.
   * @default true
   */
  reentrant?: boolean;
  /**
   * How waiters of different processes take turns: in bounded batches, or strictly in the order of arrival. The latter
   * needs a backend whose store keeps a queue and is refused on others.
   * @default 'batched'
   */
  order?: 'batched' | 'fifo';
  /**
   * Polls at this pace instead of queueing, without any order. Never sleeps beyond the holder's lease nor for more than
   * 1 s.
   * @default none if the backend pushes (the caller waits in its queue), otherwise exponentialBackoff({ min: 10, max:
   * 200 })
   */
  retry?: RetryStrategy;
  /** Ends the wait, which then rejects with `signal.reason`. Has no effect once the lock is held. */
  signal?: AbortSignal;
  /**
   * Whether the end of a hold waits for the answer to its release. With `'background'`, `withLock`, decorated methods
   * and `Lock.release()` settle as soon as the release is on its way; it is repeated until the backend confirms it or
   * the lease ends, and the application waits for it when it closes. A lock that had been lost before still rejects. A
   * loss that only the answer shows is then logged and published, and no longer thrown.
   *
   * The next call of this process for the name is not refused because of such a release. Another process may find the
   * name busy for as long as the release takes.
   * @default 'confirmed'
   */
  release?: 'confirmed' | 'background';
  /**
   * How long a released lock stays with this process, unless another process wants it: counted from the release, and at
   * most until its lease ends, which is not renewed meanwhile. The next call of this process then gets it without a
   * request, with a greater fencing token. A process that waits for the name gets it at once; to one that does not
   * queue (`wait: 0`, `retry`), the name is busy. A process that dies leaves what is left of the lease. Needs a backend
   * that tells who waits: `memory()` ignores it, and others without messages refuse it. Refused with several names,
   * `mode: 'read'`, `order: 'fifo'` and `retry`. 0 for none, whatever the module's `defaults`.
   * @default none
   */
  linger?: Duration;
  /** The name of one of the module's `backends`. @default the module's own */
  backend?: string;
}

/** `renew` of `LockOptions`. */
export interface RenewOptions {
  /**
   * The time from the send of the last confirmed renewal to the next one; at first up to half of it less, so that the
   * renewals of a process share a round trip. At least 10 ms, and less than two thirds of `ttl`, so that a failed
   * renewal can be repeated.
   * @default ttl / 3
   */
  interval?: Duration;
  /** How long one renewal may take before it is sent again. @default the lesser of `commandTimeout` and `ttl / 4` */
  timeout?: Duration;
}

/** `LockOptions` checked, complete, and in ms. */
export interface ResolvedLockOptions {
  readonly mode: LockMode;
  readonly ttl: number;
  readonly wait: number;
  /** `undefined` for that of the module. */
  readonly commandTimeout: number | undefined;
  /** As given; `renewal` resolves it for this `ttl`. */
  readonly renew: boolean | RenewSettings;
  readonly renewal: { readonly interval: number; readonly timeout: number | undefined } | undefined;
  readonly maxHold: number | undefined;
  /** 0 for none. */
  readonly minHold: number;
  /** The lease (ms) to ask for: without a renewal, it outlasts `minHold`. */
  readonly lease: number;
  /** How long (ms) a hold lasts at most that nothing renews. */
  readonly ceiling: number;
  /** Whether a lease may end with its own limits, `ceiling` or `maxHold`, although its grant goes on. */
  readonly limited: boolean;
  readonly reentrant: boolean;
  readonly order: 'batched' | 'fifo';
  readonly retry: RetryStrategy | undefined;
  readonly signal: AbortSignal | undefined;
  readonly release: 'confirmed' | 'background';
  /** 0 for none. */
  readonly linger: number;
  readonly backend: string | undefined;
  /** The key template of the decorator, for events. */
  readonly template: string | undefined;
}

const setting = settingOf<ResolvedLockOptions>();

const LOCK_OPTIONS = new OptionTable<LockOptions, ResolvedLockOptions>(
  lockOption,
  'lock option',
  '',
  {
    mode: 'write',
    ttl: 30_000,
    wait: 5_000,
    commandTimeout: undefined,
    renew: true,
    renewal: { interval: 10_000, timeout: undefined },
    maxHold: undefined,
    minHold: 0,
    lease: 30_000,
    ceiling: Infinity,
    limited: false,
    reentrant: true,
    order: 'batched',
    retry: undefined,
    signal: undefined,
    release: 'confirmed',
    linger: 0,
    backend: undefined,
    template: undefined,
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
    maxHold: setting('maxHold', (value, option, checks) =>
      value === Infinity ? undefined : checks.timerMilliseconds(option, value, 1),
    ),
    minHold: setting('minHold', timer(0)),
    mode: setting('mode', oneOf('read', 'write')),
    reentrant: setting('reentrant', trueOrFalse),
    order: setting('order', oneOf('batched', 'fifo')),
    retry: setting('retry', callable<RetryStrategy>('a function that returns an iterator of delays')),
    signal: setting('signal', abortSignal),
    release: setting('release', oneOf('confirmed', 'background')),
    linger: setting('linger', timer(0)),
    backend: setting('backend', text('the name of a backend')),
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
 * @throws LockConfigError with the option, the value and the remedy
 */
export function resolveLockOptions(options: LockOptions, base = LOCK_OPTIONS.defaults): ResolvedLockOptions {
  const given = lockOption.object('options', options, 'an object of lock options');
  const settings = LOCK_OPTIONS.settings(given, base);
  settings.renewal = renewalOf(settings, options.renew);
  const { ttl, minHold, renewal } = settings;
  settings.lease = minHold === 0 ? ttl : Math.max(ttl, Math.ceil(minHold + driftOf(minHold)));
  settings.ceiling = renewal ? Infinity : ttl - driftOf(ttl);
  settings.limited = !renewal || settings.maxHold !== undefined;
  settings.template = templateOf(options);
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
