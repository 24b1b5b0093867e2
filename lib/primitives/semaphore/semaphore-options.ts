import { abortSignal, instance, oneOf, timer, wholeNumber, type Duration } from '../../options/checks.js';
import { templateOf } from '../../options/fixed-options.js';
import { primitiveOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';

/** A permit is one member of a set at Redis, and a request names all its members. */
const MOST_AT_ONCE = 1_000;

/** How permits are taken and held. */
export interface SemaphoreOptions {
  /**
   * How many permits the semaphore has. The number of the last call counts for all processes: with fewer permits than
   * before nobody is thrown out, and new callers wait until enough are free.
   */
  permits: number;
  /**
   * The lease: how long the permit outlives a holder that died. Counted from before the request is sent. While the
   * holder lives, the lease is renewed every third of it. At least 100 ms.
   * @default '30s'
   */
  ttl?: Duration;
  /**
   * How long to wait at most for a permit, counted from the call. 0 tries once, `Infinity` waits for ever. A request
   * that is under way when the wait is over still decides, for at most `commandTimeout` more.
   * @default '5s'; one try for `tryAcquire`
   */
  wait?: Duration;
  /** How many permits the call takes, all or none: at most `permits`, and at most 1,000. @default 1 */
  count?: number;
  /** Ends the wait, which then rejects with `signal.reason`. Has no effect once the permit is held. */
  signal?: AbortSignal;
  /**
   * Whether the end of a hold waits for the answer to its release. With `'background'`, `withPermit`, decorated methods
   * and `Permit.release()` settle as soon as the permit is on its way back; the release is repeated until the store
   * confirms it or the lease ends, and the application waits for it when it closes. A permit that had been lost before
   * still rejects. A loss that only the answer shows is then logged and published, and no longer thrown.
   * @default 'confirmed'
   */
  release?: 'confirmed' | 'background';
  /** The name of one of the module's `backends`. @default the module's own */
  backend?: string;
}

/** `SemaphoreOptions` checked, complete, and in ms. */
export interface SemaphoreSettings {
  readonly permits: number;
  readonly ttl: number;
  readonly renewal: { readonly interval: number; readonly timeout: undefined };
  readonly wait: number;
  readonly count: number;
  readonly signal: AbortSignal | undefined;
  readonly release: 'confirmed' | 'background';
  readonly backend: string | undefined;
  /** The key template of the decorator, for events. */
  readonly template: string | undefined;
}

const setting = settingOf<SemaphoreSettings>();

const backendName = instance((value): value is string => typeof value === 'string', 'the name of a backend');

const SEMAPHORE_OPTIONS = new OptionTable<SemaphoreOptions, SemaphoreSettings>(
  primitiveOption,
  'semaphore option',
  '',
  {
    permits: 0,
    ttl: 30_000,
    renewal: { interval: 10_000, timeout: undefined },
    wait: 5_000,
    count: 1,
    signal: undefined,
    release: 'confirmed',
    backend: undefined,
    template: undefined,
  },
  {
    permits: setting('permits', wholeNumber),
    ttl: setting('ttl', timer(100)),
    wait: setting('wait', (value, option, checks) =>
      value === Infinity ? Infinity : checks.timerMilliseconds(option, value, 0),
    ),
    count: setting('count', wholeNumber),
    signal: setting('signal', abortSignal),
    release: setting('release', oneOf('confirmed', 'background')),
    backend: setting('backend', backendName),
  },
);

/** Of the options of a call, those that say which semaphore is meant. @inline */
export type SemaphoreLookup = Pick<SemaphoreOptions, 'backend'> & Partial<Pick<SemaphoreOptions, 'permits'>>;

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function semaphoreLookup(options: SemaphoreLookup): SemaphoreLookup {
  const { permits, backend } = checked(options);
  return { ...(permits > 0 && { permits }), ...(backend !== undefined && { backend }) };
}

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function semaphoreSettings(options: SemaphoreOptions): SemaphoreSettings {
  const settings = checked(options);
  const { permits, count } = settings;
  primitiveOption.require(permits > 0, 'permits', options.permits, 'how many permits the semaphore has');
  const most = Math.min(permits, MOST_AT_ONCE);
  primitiveOption.require(count <= most, 'count', count, `at most ${most}: the semaphore has ${permits} permits`);
  return {
    ...settings,
    renewal: { interval: settings.ttl / 3, timeout: undefined },
    template: templateOf(options),
  };
}

function checked(options: SemaphoreLookup): SemaphoreSettings {
  const remedy = 'an object of semaphore options, such as { permits: 3 }';
  return SEMAPHORE_OPTIONS.settings(primitiveOption.object('options', options, remedy));
}
