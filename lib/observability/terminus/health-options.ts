import { duration, instance, timer } from '../../options/checks.js';
import type { Duration } from '../../options/duration.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';

/** What `RedisLockHealthIndicator.check` looks at, and from when on it reports `degraded`. */
export interface HealthOptions {
  /** The name of one of the module's `backends`. @default the one that calls use by default */
  backend?: string;
  /** How long each request may take until it counts as unanswered, and the backend as `down`. @default '2s' */
  timeout?: Duration;
  /** A request that takes longer is reported as `degraded`. @default '250ms' */
  slow?: Duration;
  /** A renewal that is due for longer is reported as `degraded`: the process is busy. @default '1s' */
  maxLag?: Duration;
}

/** `HealthOptions` checked and in ms. */
export interface HealthSettings {
  readonly backend: string | undefined;
  readonly timeout: number;
  readonly slow: number;
  readonly maxLag: number;
}

const setting = settingOf<HealthSettings>();

const HEALTH_OPTIONS = new OptionTable<HealthOptions, HealthSettings>(
  lockOption,
  'option of the health check',
  '',
  { backend: undefined, timeout: 2_000, slow: 250, maxLag: 1_000 },
  {
    backend: setting(
      'backend',
      instance((value) => typeof value === 'string', 'the name of a backend'),
    ),
    timeout: setting('timeout', timer(1)),
    slow: setting('slow', duration(1)),
    maxLag: setting('maxLag', duration(1)),
  },
);

/** @throws LockConfigError with the option, the value and the remedy */
export function resolveHealthOptions(options: HealthOptions): HealthSettings {
  return HEALTH_OPTIONS.settings(lockOption.object('options', options, 'an object of options'));
}
