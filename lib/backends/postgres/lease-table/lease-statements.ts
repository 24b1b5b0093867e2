import { MOST_WAITERS } from '../../../contracts/lock-requests.js';
import { statementOf, type Statement } from '../connection/postgres-link.js';
import { ownerSql } from './owner.sql.js';
import { fromNow, microsOf, millisecondsOf, queueSql, waiterSql } from './waiter.sql.js';

/** The statements of a lease table. */
export interface LeaseStatements {
  /** Takes a free name that nobody waits for: $1 key, $2 ticket, $3 ttl. No row: ask `enqueue`. */
  readonly take: Statement;
  /**
   * Arrays of what `take` takes, each key once. A row for each name that was taken: its ticket, which is its owner now,
   * and its token.
   */
  readonly takeAll: Statement;
  /** Frees a name that nobody waits for: $1 key, $2 ticket. No row: ask `release`. */
  readonly free: Statement;
  /**
   * Arrays of what `free` takes, in the order of the keys. A row for each name that was freed: the number of its
   * request, from 1 on.
   */
  readonly freeAll: Statement;
  /** $1 key, $2 ticket, $3 ttl, $4 claim, $5 name as JSON; the last two null for a ticket that must not wait. */
  readonly enqueue: Statement;
  /** Arrays of what `enqueue` takes; each answer begins with the number of its request, from 1 on. */
  readonly enqueueAll: Statement;
  readonly release: Statement;
  readonly releaseAll: Statement;
  /** Arrays of keys, tickets and ttls. */
  readonly renewAll: Statement;
  readonly beat: Statement;
  readonly requeue: Statement;
  readonly acquire: Statement;
  readonly mint: Statement;
  /** $1 keys, $2 ticket, $3 rest in ms. */
  readonly keep: Statement;
  readonly forceRelease: Statement;
  /** $1 key, $2 what precedes a process in the table of labels. */
  readonly inspect: Statement;
  /** The same. A row for each waiter that the queue would not drop: its ticket, and the label of its process. */
  readonly waiters: Statement;
  readonly label: Statement;
  readonly unlabel: Statement;
  readonly sweep: Statement;
}

export function leaseStatements(schema: string): LeaseStatements {
  const statement: (does: keyof LeaseStatements, text: string) => Statement = statementOf;
  return {
    take: statement(
      'take',
      `
INSERT INTO ${schema}.locks AS l (key, owner, expires_at, unissued)
VALUES ($1, $2, ${fromNow('$3::int')}, ${microsOf(NOW)} + 1)
ON CONFLICT (key) DO UPDATE
SET owner = $2, expires_at = ${fromNow('$3::int')}, unissued = greatest(l.unissued, ${microsOf(NOW)}) + 1
WHERE l.waiting = 0 AND l.expires_at <= ${NOW}
RETURNING unissued - 1`,
    ),
    takeAll: statement(
      'takeAll',
      `
INSERT INTO ${schema}.locks AS l (key, owner, expires_at, unissued)
SELECT r.key, r.ticket, ${fromNow('r.ttl')}, ${microsOf(NOW)} + 1
FROM unnest($1::bytea[], $2::text[], $3::int[]) AS r (key, ticket, ttl)
ON CONFLICT (key) DO UPDATE
SET owner = excluded.owner, expires_at = excluded.expires_at, unissued = greatest(l.unissued + 1, excluded.unissued)
WHERE l.waiting = 0 AND l.expires_at <= ${NOW}
RETURNING owner, unissued - 1`,
    ),
    free: statement(
      'free',
      `
UPDATE ${schema}.locks SET owner = '', expires_at = ${NOW}
WHERE key = $1 AND owner = $2 AND waiting = 0 AND expires_at > ${NOW}`,
    ),
    // Locks the rows one by one in the order of the requests, which a join with the table itself would not keep. A row
    // that changed while this waited for it has moved out of sight of the statement, and is not freed.
    freeAll: statement(
      'freeAll',
      `
UPDATE ${schema}.locks AS l SET owner = '', expires_at = ${NOW}
FROM unnest($1::bytea[], $2::text[]) WITH ORDINALITY AS r (key, ticket, number),
LATERAL (
  SELECT o.ctid AS place FROM ${schema}.locks AS o
  WHERE o.key = r.key AND o.owner = r.ticket AND o.waiting = 0 AND o.expires_at > ${NOW}
  FOR UPDATE
) AS owned
WHERE l.ctid = owned.place
RETURNING r.number`,
    ),
    enqueue: statement('enqueue', `SELECT * FROM ${schema}.enqueue_v1($1, $2, $3, $4, $5)`),
    enqueueAll: statement(
      'enqueueAll',
      `
SELECT r.number, a.* FROM unnest($1::bytea[], $2::text[], $3::int[], $4::int[], $5::text[])
WITH ORDINALITY AS r (key, ticket, ttl, claim, name, number),
LATERAL ${schema}.enqueue_v1(r.key, r.ticket, r.ttl, r.claim, r.name) AS a`,
    ),
    release: statement('release', `SELECT ${schema}.release_v1($1, $2)`),
    releaseAll: statement(
      'releaseAll',
      `
SELECT r.number, ${schema}.release_v1(r.key, r.ticket)
FROM unnest($1::bytea[], $2::text[]) WITH ORDINALITY AS r (key, ticket, number)`,
    ),
    renewAll: statement(
      'renewAll',
      `
SELECT r.number, a.* FROM unnest($1::bytea[], $2::text[], $3::int[]) WITH ORDINALITY AS r (key, ticket, ttl, number),
LATERAL ${schema}.renew_v1(r.key, r.ticket, r.ttl) AS a`,
    ),
    beat: statement('beat', `SELECT * FROM ${schema}.beat_v1($1, $2)`),
    requeue: statement('requeue', `SELECT * FROM ${schema}.requeue_v1($1, $2, $3, $4, $5)`),
    acquire: statement('acquire', `SELECT * FROM ${schema}.acquire_v1($1::bytea[], $2, $3, $4)`),
    mint: statement('mint', `SELECT * FROM ${schema}.mint_v1($1, $2, $3)`),
    keep: statement('keep', `SELECT ${schema}.keep_v1(key, $2, $3) FROM unnest($1::bytea[]) AS key`),
    forceRelease: statement('forceRelease', `SELECT ${schema}.force_release_v1($1)`),
    inspect: statement(
      'inspect',
      `
SELECT l.owner, ${millisecondsOf(`l.expires_at - ${NOW}`)}, l.unissued, l.waiting, b.label
FROM ${schema}.locks AS l LEFT JOIN ${schema}.labels AS b
ON b.process = $2 || substring(l.owner FROM '^(.+):[0-9]+$') AND b.expires_at > ${NOW}
WHERE l.key = $1 AND l.expires_at > ${NOW}`,
    ),
    waiters: statement(
      'waiters',
      `
SELECT w.ticket, b.label
FROM ${schema}.waiters AS w LEFT JOIN ${schema}.labels AS b
ON b.process = $2 || substring(w.ticket FROM '^(.+):[0-9]+$') AND b.expires_at > ${NOW}
WHERE w.key = $1 AND w.seen_at > ${NOW} - interval '5 s'
ORDER BY w.arrival LIMIT ${MOST_WAITERS}`,
    ),
    label: statement(
      'label',
      `
INSERT INTO ${schema}.labels AS b (process, label, expires_at) VALUES ($1, $2, ${fromNow('$3::int')})
ON CONFLICT (process) DO UPDATE SET label = excluded.label, expires_at = excluded.expires_at`,
    ),
    unlabel: statement('unlabel', `DELETE FROM ${schema}.labels WHERE process = $1`),
    sweep: statement('sweep', `SELECT ${schema}.sweep_v1($1::bigint * interval '1 ms', $2)`),
  };
}

/**
 * Creates what the lease table needs, or only what is missing. The functions carry a version, so that two versions of
 * this package can work on the same locks. PostgreSQL runs a text of several statements in one transaction.
 */
export function leaseTableSql(schema: string): string {
  return `${tablesSql(schema)}${queueSql(schema)}${waiterSql(schema)}${ownerSql(schema)}`;
}

/** The function that a migration creates last: where it exists, all others do. */
export const LAST_FUNCTION = 'sweep_v1';

/**
 * The tables. No index covers a column that changes, and half of each page stays free, so that an update stays on its
 * page (HOT) and needs no VACUUM. `key` is the SHA-256 of prefix and name: see lockKey.
 */
function tablesSql(schema: string): string {
  return `
CREATE SCHEMA IF NOT EXISTS ${schema};

-- One row for each lock name. The lock is free when expires_at has passed.
CREATE TABLE IF NOT EXISTS ${schema}.locks (
  key bytea PRIMARY KEY,
  owner text NOT NULL,              -- the ticket; empty after a release
  expires_at timestamptz NOT NULL,
  unissued bigint NOT NULL,         -- the first fencing token not yet issued
  waiting int NOT NULL DEFAULT 0    -- how many rows of "waiters" have this key
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The queue of a lock. A statement that changes it has locked the row of "locks".
CREATE TABLE IF NOT EXISTS ${schema}.waiters (
  key bytea NOT NULL,
  arrival bigint GENERATED ALWAYS AS IDENTITY,
  ticket text NOT NULL,
  claim int NOT NULL,               -- the lease of its grant, in ms
  name text NOT NULL,               -- the name of the lock as a JSON string, for messages
  seen_at timestamptz NOT NULL,     -- its last heartbeat
  PRIMARY KEY (key, arrival)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- What "inspect" says of the process that owns a lock.
CREATE TABLE IF NOT EXISTS ${schema}.labels (
  process text PRIMARY KEY,
  label text NOT NULL,
  expires_at timestamptz NOT NULL
);
`;
}

const NOW = 'clock_timestamp()';
