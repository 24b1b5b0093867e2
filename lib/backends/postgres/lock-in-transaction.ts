import type { ClientBase, QueryArrayResult } from 'pg';
import { LockKeyError, LockTimeoutError } from '../../errors/lock-errors.js';
import { whyNotAName } from '../../keys/key-part.js';
import { prefixText, timer, type Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import { advisoryKey } from './advisory/advisory-session.js';
import { AS_TEXT } from './connection/postgres-link.js';
import { codeOf } from '../failures.js';

/** The options of `lockInTransaction()`. */
export interface TransactionLockOptions {
  /** How long to wait for the name at most; 0 = one try. @default '5s' */
  wait?: Duration;
  /** The `prefix` of the module, so that the names are those of `advisory()`. */
  prefix?: string;
}

interface TransactionLockSettings {
  readonly wait: number;
  readonly prefix: string | undefined;
}

const setting = settingOf<TransactionLockSettings>();

const OPTIONS = new OptionTable<TransactionLockOptions, TransactionLockSettings>(
  lockOption,
  'option of lockInTransaction()',
  '',
  { wait: 5_000, prefix: undefined },
  { wait: setting('wait', timer(0)), prefix: setting('prefix', prefixText) },
);

/** What PostgreSQL answers when the wait is over. */
const LOCK_NOT_AVAILABLE = '55P03';
/** What PostgreSQL answers to SAVEPOINT outside a transaction. */
const NO_TRANSACTION = '25P01';

/**
 * Takes the advisory lock of `name` inside a transaction of the caller's: `COMMIT` and `ROLLBACK` free it, so that
 * nothing of the transaction is ever done without the lock. It excludes, and is excluded by, `advisory()`.
 *
 * `client` is one connection, a `Client` or what `pool.connect()` returns, on which `BEGIN` has run at the isolation
 * level `READ COMMITTED`, the default of PostgreSQL. `ROLLBACK TO SAVEPOINT` frees a lock that was taken after the
 * savepoint. After a wait in vain the transaction is aborted, as after any error of PostgreSQL; after one try
 * (`wait: 0`) it is not.
 *
 * @throws LockTimeoutError when the name is still taken after `wait`
 * @throws LockKeyError for what is no name, such as `undefined` or an empty string
 * @throws LockConfigError when an option has an invalid value, when `client` is a `Pool` or has no open transaction,
 *   and when the transaction runs at `REPEATABLE READ` or `SERIALIZABLE`: it would read data from before the lock
 */
export async function lockInTransaction(
  client: ClientBase,
  name: string,
  options: TransactionLockOptions = {},
): Promise<void> {
  requireClient(client);
  requireName(name);
  const given = lockOption.object('options', options, 'an object of options of lockInTransaction()');
  const { wait: limit, prefix } = OPTIONS.settings(given);
  const key = advisoryKey(prefix, name);
  const start = performance.now();
  const { isolation, timeLimit, taken } = await tryInTransaction(client, key);
  if (taken === null) throw lockOption.conflict(snapshotTooOld(isolation));
  if (taken) return;
  const timedOut = () => new LockTimeoutError([name], { waited: performance.now() - start, remaining: Infinity });
  if (limit === 0) throw timedOut();
  try {
    await client.query(
      `SET LOCAL lock_timeout = ${limit}; SELECT pg_advisory_xact_lock(${key}); SET LOCAL lock_timeout = '${timeLimit}'`,
    );
  } catch (error) {
    throw codeOf(error) === LOCK_NOT_AVAILABLE ? timedOut() : error;
  }
}

function requireClient(client: unknown): void {
  if (typeof client === 'object' && client !== null && 'totalCount' in client) {
    throw lockOption.conflict(
      'lockInTransaction() got a Pool, which runs each statement on any of its connections; give the client of ' +
        'pool.connect() on which BEGIN has run',
    );
  }
  const isClient = typeof client === 'object' && client !== null && 'query' in client;
  if (!isClient) throw lockOption.refused('client', client, 'a Client of pg on which BEGIN has run');
}

/** Other values would be made into text, which is one name for many of them. */
function requireName(name: unknown): void {
  const why = whyNotAName(name);
  if (why === undefined) return;
  throw new LockKeyError(`The name of lockInTransaction() is ${why}; give a string of one character or more`);
}

interface Attempt {
  readonly isolation: string;
  /** The `lock_timeout` of the transaction. */
  readonly timeLimit: string;
  /** `null` where the isolation level rules a lock out. */
  readonly taken: boolean | null;
}

/**
 * SAVEPOINT fails outside a transaction, where the lock would end with its own statement.
 */
async function tryInTransaction(client: ClientBase, key: string): Promise<Attempt> {
  const text = `SAVEPOINT nest_redis_lock; RELEASE SAVEPOINT nest_redis_lock;
SELECT current_setting('transaction_isolation'), current_setting('lock_timeout'),
  CASE WHEN current_setting('transaction_isolation') LIKE 'read %' THEN pg_try_advisory_xact_lock(${key})::text END`;
  try {
    const results: unknown = await client.query({ text, rowMode: 'array', types: AS_TEXT });
    const { rows } = (results as QueryArrayResult<[string, string, string | null]>[])[2] ?? { rows: [] };
    const [isolation = '', timeLimit = '', taken = null] = rows[0] ?? [];
    return { isolation, timeLimit, taken: taken === null ? null : taken === 'true' };
  } catch (error) {
    if (codeOf(error) !== NO_TRANSACTION) throw error;
    const why = 'lockInTransaction() found no open transaction on the client, and would lock nothing';
    throw lockOption.conflict(`${why}; run BEGIN on the same client before`);
  }
}

function snapshotTooOld(isolation: string): string {
  const why = `a transaction at isolation level "${isolation}" reads data from before the lock was granted`;
  return `lockInTransaction(): ${why}; begin it with BEGIN ISOLATION LEVEL READ COMMITTED`;
}
