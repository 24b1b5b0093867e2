import type { ClientConfig } from 'pg';
import { duration, trueOrFalse, type Duration } from '../../../options/checks.js';
import { lockOption } from '../../../options/option-checks.js';
import { OptionTable, settingOf } from '../../../options/option-table.js';
import { schemaName } from '../connection/migration.js';
import { optionsOf, requirePostgresConnection } from '../connection/postgres-connection.js';

/** The options of `leaseTable()` beside the connection. */
export interface LeaseTableOptions {
  /** The schema of the tables and functions. Lower-case letters, digits and `_`. @default 'nest_redis_lock' */
  schema?: string;
  /**
   * Whether the backend creates schema, tables and functions when it finds them missing. Otherwise run
   * docs/postgres.sql first.
   * @default true
   */
  migrate?: boolean;
  /**
   * How long the row of a name stays after its last use. Tokens rise even without it, because they start from the clock
   * of the server; the row bridges a clock that was set back. At least 1 s.
   * @default '10m'
   */
  fenceTtl?: Duration;
  /**
   * The connection for messages, where the other one leads through a pooler in transaction mode, which passes on none.
   * @default the options of the other connection
   */
  messages?: ClientConfig | string;
}

export interface LeaseTableSettings {
  readonly schema: string;
  readonly migrate: boolean;
  readonly fenceTtl: number;
  readonly messages: ClientConfig | undefined;
}

const setting = settingOf<LeaseTableSettings>();

const OPTIONS = new OptionTable<LeaseTableOptions, LeaseTableSettings>(
  lockOption,
  'option of leaseTable()',
  '',
  { schema: 'nest_redis_lock', migrate: true, fenceTtl: 600_000, messages: undefined },
  {
    schema: setting('schema', schemaName),
    migrate: setting('migrate', trueOrFalse),
    fenceTtl: setting('fenceTtl', duration(1_000)),
    messages: setting('messages', (value, option) => {
      requirePostgresConnection(option, value);
      return optionsOf(value);
    }),
  },
);

/** @throws LockConfigError with the option, the value and the remedy */
export function leaseTableSettings(options: LeaseTableOptions): LeaseTableSettings {
  return OPTIONS.settings(lockOption.object('options', options, 'an object of options'));
}
