import type { Notice } from '../../../contracts/start-request.js';
import { PostgresFailure } from '../connection/diagnosis.js';
import { statementOf } from '../connection/statement.js';
import type { LeaseTable } from './lease-table.js';
import { LAST_FUNCTION } from './sql/lease-table.sql.js';

/** The oldest version that is supported by its makers, and that has identity columns. */
const LEAST_VERSION = 120_000;

/**
 * Checks the server before it is used: its version, whether it takes writes, its isolation level, and the rights.
 * Creates the tables and functions where they are missing.
 *
 * @throws PostgresFailure in one line
 */
export async function checkLeaseTable(
  table: LeaseTable,
  schema: string,
  report: (notice: Notice) => void,
): Promise<void> {
  const { server } = table.link;
  const settings = statementOf(
    'check',
    `
SELECT current_setting('server_version_num'), current_setting('transaction_read_only'),
  current_setting('transaction_isolation'), current_setting('synchronous_commit'), current_user,
  EXISTS (
    SELECT 1 FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname = '${schema}' AND p.proname = '${LAST_FUNCTION}'
  )`,
  );
  const { rows } = await table.link.query(settings, []);
  const [version, readOnly, isolation, durability, user, complete] = (rows[0] ?? []).map(String);
  const refuse = (why: string) => new PostgresFailure(`${server} ${why}`);
  if (Number(version) < LEAST_VERSION) throw refuse(`is too old (${version}): use PostgreSQL 12 or later`);
  if (readOnly === 'on') throw refuse('takes no writes: give the address of the primary');
  if (isolation !== 'read committed') {
    throw refuse(`runs ${isolation} transactions: set default_transaction_isolation to 'read committed' for the locks`);
  }
  if (durability === 'off') {
    const message = `${server}: with synchronous_commit "off" a crash of the server may forget locks of its last moments`;
    report({ level: 'debug', message });
  }
  if (complete !== 'true') await table.migration.run();
  await checkRights(table, schema, user ?? '');
}

async function checkRights(table: LeaseTable, schema: string, user: string): Promise<void> {
  const rights = statementOf(
    'rights',
    `
SELECT CASE WHEN has_schema_privilege('${schema}', 'USAGE') THEN (
  SELECT bool_and(has_table_privilege('${schema}.' || name, 'SELECT') AND has_table_privilege('${schema}.' || name, 'INSERT')
    AND has_table_privilege('${schema}.' || name, 'UPDATE') AND has_table_privilege('${schema}.' || name, 'DELETE'))
  FROM unnest(ARRAY['locks', 'waiters', 'labels']) AS name) END`,
  );
  const { rows } = await table.link.query(rights, []);
  if (String(rows[0]?.[0]) === 'true') return;
  throw new PostgresFailure(
    `${table.link.server}: user "${user}" lacks rights: GRANT USAGE ON SCHEMA ${schema} TO "${user}"; ` +
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO "${user}"`,
  );
}
