import { callable, text, timer } from '../../options/checks.js';
import type { Duration } from '../../options/duration.js';
import { primitiveOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import { requireFixedName } from '../fixed-name.js';
import type { LeaderCallbacks } from './leadership.js';

/** How a process stands for a leadership. All candidates of a name should give the same. */
export interface CandidateOptions extends LeaderCallbacks {
  /**
   * How long a leader that died, or that cannot reach the backend, stays leader. While it lives, its lease is renewed
   * every third of that. At least 100 ms.
   * @default '10s'
   */
  lease?: Duration;
  /** The name of one of the module's `backends`. @default the module's own */
  backend?: string;
}

/** `CandidateOptions` checked, and in ms. */
export interface CandidateSettings {
  readonly lease: number;
  readonly backend: string | undefined;
  readonly onElected: LeaderCallbacks['onElected'] | undefined;
  readonly onLost: LeaderCallbacks['onLost'] | undefined;
}

const setting = settingOf<CandidateSettings>();

const CANDIDATE_OPTIONS = new OptionTable<CandidateOptions, CandidateSettings>(
  primitiveOption,
  'option of a candidate',
  '',
  { lease: 10_000, backend: undefined, onElected: undefined, onLost: undefined },
  {
    lease: setting('lease', timer(100)),
    backend: setting('backend', text('the name of a backend')),
    onElected: setting('onElected', callable()),
    onLost: setting('onLost', callable()),
  },
);

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function candidateSettings(options: CandidateOptions): CandidateSettings {
  return CANDIDATE_OPTIONS.settings(primitiveOption.object('options', options, 'an object of candidate options'));
}

/**
 * The name of the lock of a leadership.
 *
 * @throws PrimitiveKeyError
 */
export function leaderLockName(name: string): string {
  requireFixedName(name, 'leadership', 'LeaderElection.join()');
  return `leader:${name}`;
}
