/**
 * The tables. No index covers a column that changes, and half of each page stays free, so that an update stays on its
 * page (HOT) and needs no VACUUM. `key` is the SHA-256 of prefix and name: see lockKey.
 */
export function tablesSql(schema: string): string {
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
