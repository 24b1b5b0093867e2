import { trueOrFalse, wholeNumber } from '../../../options/checks.js';
import { lockOption } from '../../../options/option-checks.js';
import { OptionTable, settingOf } from '../../../options/option-table.js';
import { schemaName } from '../connection/migration.js';

/** The options of `advisory()` beside the connection. */
export interface AdvisoryOptions {
  /**
   * How many connections the backend opens for its locks; it opens each when a lock needs it. Beside them it uses one
   * that tells who has a lock: of the pool, where it is given a pool. @default 2
   */
  sessions?: number;
  /** The schema of the sequence of fencing tokens. @default 'nest_redis_lock' */
  schema?: string;
  /** Whether the backend creates the sequence when it finds it missing. @default true */
  migrate?: boolean;
}

export interface AdvisorySettings {
  readonly sessions: number;
  readonly schema: string;
  readonly migrate: boolean;
}

const setting = settingOf<AdvisorySettings>();

const OPTIONS = new OptionTable<AdvisoryOptions, AdvisorySettings>(
  lockOption,
  'option of advisory()',
  '',
  { sessions: 2, schema: 'nest_redis_lock', migrate: true },
  {
    sessions: setting('sessions', wholeNumber),
    schema: setting('schema', schemaName),
    migrate: setting('migrate', trueOrFalse),
  },
);

/** @throws LockConfigError with the option, the value and the remedy */
export function advisorySettings(options: AdvisoryOptions): AdvisorySettings {
  return OPTIONS.settings(lockOption.object('options', options, 'an object of options'));
}
