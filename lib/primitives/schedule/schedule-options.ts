import type { LockOptions } from '../../lock/options/lock-options.js';
import { text, timer, type Duration } from '../../options/checks.js';
import { templateOf, withTemplate } from '../../options/fixed-options.js';
import { primitiveOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import { requireFixedName } from '../runtime.js';

/** How long a scheduled job has its name. Both durations count from the begin of the run. */
export interface ScheduleOptions {
  /**
   * How long the name stays taken at most: the run should have ended by then. At that time, less 1 % and 2 ms for
   * clocks that run at different speeds, the signal of the run aborts. After a crash, the first tick after that time
   * runs. Give much more than the job usually takes. At least 100 ms.
   */
  atMostFor: Duration;
  /**
   * How long the name stays taken at least, even if the run ends sooner or its process dies: more than the clocks of
   * the machines differ, and less than the period of the job. 0 frees the name when the run ends, which a backend that
   * cannot keep a name without its holder needs (etcd, ZooKeeper, session locks of a database).
   */
  atLeastFor: Duration;
  /** The name of one of the module's `backends`. @default the module's own */
  backend?: string;
}

/** A job and how it is locked, checked and in ms. */
export interface Schedule {
  readonly name: string;
  /** The name of its lock. */
  readonly lockName: string;
  readonly atMostFor: number;
  readonly lockOptions: LockOptions;
  /** The name in the decorator, for events. */
  readonly template: string | undefined;
}

interface Settings {
  readonly atMostFor: number | undefined;
  readonly atLeastFor: number | undefined;
  readonly backend: string | undefined;
}

const setting = settingOf<Settings>();

const SCHEDULE_OPTIONS = new OptionTable<ScheduleOptions, Settings>(
  primitiveOption,
  'option of a scheduled job',
  '',
  { atMostFor: undefined, atLeastFor: undefined, backend: undefined },
  {
    atMostFor: setting('atMostFor', timer(100)),
    atLeastFor: setting('atLeastFor', timer(0)),
    backend: setting('backend', text('the name of a backend')),
  },
);

/**
 * Checks the name and the options of a job.
 *
 * @throws PrimitiveKeyError, PrimitiveConfigError with the option, the value and the remedy
 */
export function scheduleOf(name: string, options: ScheduleOptions): Schedule {
  const given = primitiveOption.object('options', options, '{ atMostFor, atLeastFor }');
  const { atMostFor, atLeastFor, backend } = SCHEDULE_OPTIONS.settings(given);
  if (atMostFor === undefined) {
    throw primitiveOption.refused('atMostFor', atMostFor, "how long a run may last, such as '10m'");
  }
  if (atLeastFor === undefined) {
    const remedy = "more than the clocks of the machines differ, such as '30s', or 0 to free the name when a run ends";
    throw primitiveOption.refused('atLeastFor', atLeastFor, remedy);
  }
  primitiveOption.require(
    atLeastFor <= atMostFor,
    'atLeastFor',
    options.atLeastFor,
    `at most atMostFor (${atMostFor})`,
  );
  const lockName = scheduleLockName(name);
  const template = templateOf(given);
  const lockOptions: LockOptions = {
    ttl: atMostFor,
    wait: 0,
    renew: false,
    maxHold: Infinity,
    minHold: atLeastFor,
    reentrant: true,
    order: 'batched',
    linger: 0,
    ...(backend !== undefined && { backend }),
  };
  return {
    name,
    lockName,
    atMostFor,
    // The name is fixed, so that it is the template of its lock, too.
    lockOptions: template === undefined ? lockOptions : withTemplate(lockOptions, lockName),
    template,
  };
}

/**
 * The name of the lock of a job.
 *
 * @throws PrimitiveKeyError
 */
export function scheduleLockName(name: string): string {
  requireFixedName(name, 'scheduled job', 'ScheduledJobs.run()');
  return `schedule:${name}`;
}
