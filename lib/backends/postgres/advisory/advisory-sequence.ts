import { statementOf, type Statement } from '../connection/postgres-link.js';

/** The clock of the server in microseconds. */
const CLOCK = '(extract(epoch FROM clock_timestamp()) * 1000000)::bigint';

/** How many fencing tokens one value of the sequence stands for. */
export const TOKENS = 1_024;

/**
 * The sequence of the fencing tokens. It begins at the clock of the server in microseconds, as the tokens of the other
 * backends do, so that rows with a token of theirs accept its own.
 */
export function sequenceSql(schema: string): string {
  return `
CREATE SCHEMA IF NOT EXISTS ${schema};

DO $$ BEGIN
  EXECUTE format(
    'CREATE SEQUENCE IF NOT EXISTS ${schema}.tokens INCREMENT ${TOKENS} START %s CACHE 1',
    ${CLOCK}
  );
END $$;

-- Which ticket has a lock, as long as the session with this pid has it. Nothing of it need survive a crash.
CREATE UNLOGGED TABLE IF NOT EXISTS ${schema}.holders (
  key bigint PRIMARY KEY,
  pid int NOT NULL,
  ticket text NOT NULL,
  unissued bigint NOT NULL
) WITH (fillfactor = 50);
`;
}

/** The setting of a session that says whose it is. */
const MARK = `coalesce(current_setting('nest_redis_lock.session', true), '')`;

/**
 * The first column of what a session answers is its mark; the last value that it is asked with is that of the asker.
 */
export interface AdvisoryStatements {
  /** $1 the mark. No row: the session has a mark or advisory locks already, which are those of somebody else. */
  readonly claim: Statement;
  /** $1 key, $2 ticket, $3 mark. Returns a value of the sequence if the lock was free. */
  readonly take: Statement;
  /** $1 key, $2 mark. */
  readonly free: Statement;
  /** $1 key, $2 mark. Frees the lock without a write, whether this session has it or not. */
  readonly unlock: Statement;
  /** $1 key. Returns a value of the sequence. */
  readonly mint: Statement;
  /** $1: what the sequence goes on from, unless it or the clock of the server in microseconds is further already. */
  readonly raise: Statement;
  readonly check: Statement;
  /** $1 key. Returns the pid of the holder, its ticket and its first token not yet issued. */
  readonly holder: Statement;
  /** Deletes what sessions have left that ended. */
  readonly forget: Statement;
}

export function advisoryStatements(schema: string): AdvisoryStatements {
  const sequence = `'${schema}.tokens'`;
  // Advisory locks of two 32-bit keys are apart from those of names. `raise` excludes the statements that draw: setval
  // would otherwise undo what they draw after it has read the sequence.
  const gate = `hashtext('nest_redis_lock'), hashtext(${sequence})`;
  const draw = `(SELECT nextval(${sequence}) FROM pg_advisory_xact_lock_shared(${gate}))`;
  return {
    claim: statementOf(
      'advisory_claim',
      `
SELECT set_config('nest_redis_lock.session', $1, false) WHERE ${MARK} = ''
AND NOT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())`,
    ),
    take: statementOf(
      'advisory_take',
      `
WITH taken AS MATERIALIZED (
  SELECT CASE WHEN ${MARK} = $3 THEN
    CASE WHEN pg_try_advisory_lock($1::bigint) THEN ${draw} END
  END AS token
), noted AS (
  INSERT INTO ${schema}.holders (key, pid, ticket, unissued)
  SELECT $1::bigint, pg_backend_pid(), $2, token + ${TOKENS} FROM taken WHERE token IS NOT NULL
  ON CONFLICT (key) DO UPDATE SET pid = excluded.pid, ticket = excluded.ticket, unissued = excluded.unissued
)
SELECT ${MARK}, token FROM taken`,
    ),
    free: statementOf(
      'advisory_free',
      `
WITH forgotten AS (DELETE FROM ${schema}.holders WHERE key = $1::bigint AND pid = pg_backend_pid() AND ${MARK} = $2)
SELECT ${MARK}, CASE WHEN ${MARK} = $2 THEN pg_advisory_unlock($1::bigint) END`,
    ),
    unlock: statementOf(
      'advisory_unlock',
      `SELECT ${MARK}, CASE WHEN ${MARK} = $2 THEN pg_advisory_unlock($1::bigint) END`,
    ),
    mint: statementOf(
      'advisory_mint',
      `
WITH next AS MATERIALIZED (SELECT ${draw} AS token), noted AS (
  UPDATE ${schema}.holders SET unissued = next.token + ${TOKENS} FROM next WHERE key = $1::bigint
)
SELECT ${MARK}, token FROM next`,
    ),
    raise: statementOf(
      'advisory_raise',
      `
SELECT ${MARK}, CASE WHEN pg_advisory_xact_lock(${gate}) IS NOT NULL
  THEN setval(${sequence}, greatest($1::bigint, ${CLOCK}, (SELECT last_value FROM ${schema}.tokens))) END`,
    ),
    check: statementOf('advisory_check', `SELECT ${MARK}`),
    holder: statementOf(
      'advisory_holder',
      `
SELECT l.pid, h.ticket, h.unissued
FROM pg_locks AS l LEFT JOIN ${schema}.holders AS h ON h.key = $1::bigint AND h.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (l.classid::bigint << 32 | l.objid::bigint) = $1::bigint`,
    ),
    forget: statementOf(
      'advisory_forget',
      `
DELETE FROM ${schema}.holders AS h
WHERE NOT EXISTS (SELECT 1 FROM pg_stat_activity AS a WHERE a.pid = h.pid)`,
    ),
  };
}
