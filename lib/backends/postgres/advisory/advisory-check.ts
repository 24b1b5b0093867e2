import { PostgresFailure } from '../connection/diagnosis.js';
import type { Migration } from '../connection/migration.js';
import { statementOf } from '../connection/statement.js';

/** The oldest version that knows `MATERIALIZED`. */
const LEAST_VERSION = 120_000;

/**
 * Checks the server before it is used: its version, whether it takes writes, and the rights. Creates the sequence and
 * the table where they are missing.
 *
 * @throws PostgresFailure in one line
 */
export async function checkAdvisory(migration: Migration, server: string, schema: string): Promise<void> {
  const sequence = `'${schema}.tokens'`;
  const table = `'${schema}.holders'`;
  const check = statementOf(
    'advisory_start',
    `
SELECT current_setting('server_version_num'), current_setting('transaction_read_only'), current_user,
  CASE WHEN has_schema_privilege('${schema}', 'USAGE') THEN
    has_sequence_privilege(${sequence}, 'USAGE') AND has_sequence_privilege(${sequence}, 'SELECT')
    AND has_sequence_privilege(${sequence}, 'UPDATE')
    AND has_table_privilege(${table}, 'SELECT') AND has_table_privilege(${table}, 'INSERT')
    AND has_table_privilege(${table}, 'UPDATE') AND has_table_privilege(${table}, 'DELETE')
  END`,
  );
  const { rows } = await migration.query(check, []);
  const [version, readOnly, user, allowed] = (rows[0] ?? []).map(String);
  const refuse = (why: string) => new PostgresFailure(`${server}${why}`);
  if (Number(version) < LEAST_VERSION) throw refuse(` is too old (${version}): use PostgreSQL 12 or later`);
  if (readOnly === 'on') {
    throw refuse(' takes no writes: give the address of the primary, or set default_transaction_read_only to off');
  }
  if (allowed === 'true') return;
  throw refuse(
    `: user "${user}" lacks rights: GRANT USAGE ON SCHEMA ${schema} TO "${user}"; ` +
      `GRANT USAGE, SELECT, UPDATE ON SEQUENCE ${schema}.tokens TO "${user}"; ` +
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ${schema}.holders TO "${user}"`,
  );
}
