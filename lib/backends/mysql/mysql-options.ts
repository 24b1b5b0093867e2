import { duration, trueOrFalse, wholeNumber, type Check, type Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';

/** The options of `leaseTable()` beside the connection. */
export interface LeaseTableOptions {
  /** The table of the locks, also as `database.table`. Default `nest_redis_lock`. */
  readonly table?: string;
  /** Whether the backend creates the table where it is missing. Default `true`. */
  readonly createTable?: boolean;
  /** How long the row of an unused name stays, from the end of its last lease on. Default `'1h'`. */
  readonly keepRows?: Duration;
}

/** The options of `getLock()` beside the connection. */
export interface GetLockOptions {
  /** How many connections the backend opens for its locks; it opens each when a lock needs it. Default 2. */
  readonly sessions?: number;
  /** The table of the fencing tokens, also as `database.table`. Default `nest_redis_lock_tokens`. */
  readonly table?: string;
  /** Whether the backend creates the table where it is missing. Default `true`. */
  readonly createTable?: boolean;
  /** How long the row of an unused name stays. Default `'1d'`. */
  readonly keepRows?: Duration;
}

export interface LockTableSettings {
  /** Quoted. */
  readonly table: string;
  readonly createTable: boolean;
  /** Milliseconds that an unused row stays. */
  readonly keepRows: number;
}

export interface GetLockSettings extends LockTableSettings {
  readonly sessions: number;
}

const TABLE = /^[A-Za-z0-9_$]{1,64}(\.[A-Za-z0-9_$]{1,64})?$/;

const tableName: Check<string> = (value, option, checks) => {
  if (typeof value !== 'string' || !TABLE.test(value)) {
    throw checks.refused(option, value, 'a name of letters, digits, _ and $, or database.table');
  }
  return value
    .split('.')
    .map((part) => `\`${part}\``)
    .join('.');
};

const setting = settingOf<LockTableSettings>();

export const LEASE_TABLE_OPTIONS = new OptionTable<LeaseTableOptions, LockTableSettings>(
  lockOption,
  'option of leaseTable()',
  '',
  { table: '`nest_redis_lock`', createTable: true, keepRows: 3_600_000 },
  {
    table: setting('table', tableName),
    createTable: setting('createTable', trueOrFalse),
    keepRows: setting('keepRows', duration(1_000)),
  },
);

const sessionSetting = settingOf<GetLockSettings>();

export const GET_LOCK_OPTIONS = new OptionTable<GetLockOptions, GetLockSettings>(
  lockOption,
  'option of getLock()',
  '',
  { sessions: 2, table: '`nest_redis_lock_tokens`', createTable: true, keepRows: 86_400_000 },
  {
    sessions: sessionSetting('sessions', wholeNumber),
    table: sessionSetting('table', tableName),
    createTable: sessionSetting('createTable', trueOrFalse),
    keepRows: sessionSetting('keepRows', duration(1_000)),
  },
);
