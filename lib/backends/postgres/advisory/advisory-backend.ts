import type { Client } from 'pg';
import type { LockBackend, LockState } from '../../../contracts/lock-backend.js';
import { BackendRefusal, ownStore } from '../../../contracts/store.js';
import { trueOrFalse, wholeNumber } from '../../../options/checks.js';
import { lockOption } from '../../../options/option-checks.js';
import { OptionTable, settingOf } from '../../../options/option-table.js';
import { SESSION_TRAITS, sessionLocks, SessionSlots } from '../../sessions/session-locks.js';
import type { StoreSession } from '../../sessions/session-slot.js';
import { Migration, schemaName } from '../connection/migration.js';
import {
  isPool,
  optionsOf,
  requirePostgresConnection,
  type PostgresConnection,
  PostgresFailure,
  PostgresRefusal,
} from '../connection/postgres-connection.js';
import { AS_TEXT, PostgresLink, statementOf } from '../connection/postgres-link.js';
import { advisoryStatements, sequenceSql } from './advisory-sequence.js';
import { advisoryKey, AdvisorySession, PATIENCE, THROUGH_POOLER } from './advisory-session.js';

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

interface AdvisorySettings {
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

/**
 * Advisory locks of PostgreSQL: they end with the session that took them, at once when its process dies, and need no
 * table. The sessions are connections of the backend's own, also where a pool is passed in.
 *
 * @throws LockConfigError for a connection or an option that it cannot use
 */
export function advisory(connection: PostgresConnection, options: AdvisoryOptions = {}): LockBackend {
  requirePostgresConnection('connection', connection);
  return advisoryOn(connection, OPTIONS.settings(lockOption.object('options', options, 'an object of options')));
}

function advisoryOn(connection: PostgresConnection, { sessions, schema, migrate }: AdvisorySettings): LockBackend {
  // One connection beside the sessions tells who has a lock.
  const link = new PostgresLink(isPool(connection) ? connection : { ...optionsOf(connection), max: 1 });
  const statements = advisoryStatements(schema);
  const migration = new Migration(link, { schema, sql: sequenceSql(schema), allowed: migrate });
  let prepared: Promise<void> | undefined;

  /** Refuses what cannot work, and creates the sequence; again at the next use if that fails. */
  const prepare = (): Promise<void> => {
    prepared ??= (async () => {
      if (await sharesSessions(link)) throw new BackendRefusal(`${link.server}: ${THROUGH_POOLER}`);
      await checkAdvisory(migration, link.server, schema);
    })();
    prepared.catch(() => (prepared = undefined));
    return prepared;
  };

  const openSession = async (ended: (why: Error) => void): Promise<StoreSession> => {
    await prepare();
    return AdvisorySession.open(link, { statements, make: () => migration.run() }, ended);
  };
  const slots = new SessionSlots(openSession, sessions, link.listeners.lost);

  const inspect = async (key: string): Promise<LockState | null> => {
    await prepare();
    const { rows } = await migration.query(statements.holder, [key]);
    const [row] = rows;
    if (!row) return null;
    const [pid, ticket, unissued] = row;
    return {
      // Who took the lock without this library is known by the session alone.
      owner: typeof ticket === 'string' ? ticket : `pid ${Number(pid)}`,
      ttl: Infinity,
      fencingToken: unissued === null ? null : Number(unissued) - 1,
      waiting: 0,
    };
  };

  return {
    name: 'postgres-advisory',
    traits: SESSION_TRAITS,
    open: (module) =>
      ownStore({
        ...sessionLocks(slots, (name) => advisoryKey(module.prefix, name), inspect),
        start: prepare,
        stop: link.listeners.add(module),
      }),
    diagnose: (error) => link.diagnose(error),
    ping: () => link.run('SELECT 1'),
    async close() {
      await slots.close();
      await link.close();
    },
  };
}

/** The oldest version that knows `MATERIALIZED`. */
const LEAST_VERSION = 120_000;

/**
 * Checks the server before it is used: its version, whether it takes writes, and the rights. Creates the sequence and
 * the table where they are missing.
 *
 * @throws PostgresFailure in one line
 */
async function checkAdvisory(migration: Migration, server: string, schema: string): Promise<void> {
  const sequence = `'${schema}.tokens'`;
  const table = `'${schema}.holders'`;
  const check = statementOf(
    'advisory_start',
    `
SELECT current_setting('server_version_num'), current_setting('transaction_read_only'), current_user,
  (CASE WHEN has_schema_privilege('${schema}', 'USAGE') THEN
    has_sequence_privilege(${sequence}, 'USAGE') AND has_sequence_privilege(${sequence}, 'SELECT')
    AND has_sequence_privilege(${sequence}, 'UPDATE')
    AND has_table_privilege(${table}, 'SELECT') AND has_table_privilege(${table}, 'INSERT')
    AND has_table_privilege(${table}, 'UPDATE') AND has_table_privilege(${table}, 'DELETE')
  END)::text`,
  );
  const { rows } = await migration.query(check, []);
  const [version, readOnly, user, allowed] = (rows[0] ?? []).map(String);
  const refuse = (why: string) => new PostgresRefusal(`${server}${why}`);
  if (Number(version) < LEAST_VERSION) throw refuse(` is too old (${version}): use PostgreSQL 12 or later`);
  if (readOnly === 'on') {
    // A standby may become the primary.
    throw new PostgresFailure(
      `${server} takes no writes: give the address of the primary, or set default_transaction_read_only to off`,
    );
  }
  if (allowed === 'true') return;
  throw refuse(
    `: user "${user}" lacks rights: GRANT USAGE ON SCHEMA ${schema} TO "${user}"; ` +
      `GRANT USAGE, SELECT, UPDATE ON SEQUENCE ${schema}.tokens TO "${user}"; ` +
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ${schema}.holders TO "${user}"`,
  );
}

/** How often it looks: a busy pooler may not have got the session of the one back yet, and lends the other a third. */
const MOST_LOOKS = 5;

/**
 * Looks for a pooler that shares the sessions of the server between its connections: while one connection waits between
 * two statements, another gets its session, and it then finds itself in a different one.
 */
async function sharesSessions(link: PostgresLink): Promise<boolean> {
  const options = { ...link.options, query_timeout: PATIENCE };
  const [one, two] = [link.connection(options), link.connection(options)];
  try {
    await Promise.all([one.connect(), two.connect()]);
    const before = await pidOf(one);
    // A pooler that uses its sessions in turn is at the next one now.
    const next = await pidOf(one);
    let shared = next !== before;
    for (let looks = 0; looks < MOST_LOOKS && !shared; looks++) {
      await two.query('BEGIN');
      // Where the pooler has one session alone, the transaction keeps it from answering the first connection.
      shared = (await pidOf(two)) === before || (await pidOf(one)) !== before;
      await two.query('ROLLBACK');
    }
    for (const client of [one, two]) void client.end().catch(() => {});
    return shared;
  } catch (error) {
    for (const client of [one, two]) client.connection.stream.destroy();
    throw error;
  }
}

async function pidOf(client: Client): Promise<number> {
  const { rows } = await client.query<[number]>({ text: 'SELECT pg_backend_pid()', rowMode: 'array', types: AS_TEXT });
  return Number(rows[0]?.[0]);
}
