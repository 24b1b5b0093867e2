import type { Client } from 'pg';
import { PostgresFailure } from '../connection/diagnosis.js';
import type { PostgresLink } from '../connection/postgres-link.js';
import { PATIENCE, THROUGH_POOLER } from './advisory-session.js';

/**
 * Looks for a pooler that shares the sessions of the server between its connections: while one connection waits between
 * two statements, another gets its session, and it then finds itself in a different one.
 *
 * @throws PostgresFailure when there is one
 */
export async function refuseSharedSessions(link: PostgresLink): Promise<void> {
  const options = { ...link.options, query_timeout: PATIENCE };
  const [one, two] = [link.connection(options), link.connection(options)];
  try {
    await Promise.all([one.connect(), two.connect()]);
    const before = await pidOf(one);
    // A pooler that uses its sessions in turn is at the next one now.
    const next = await pidOf(one);
    await two.query('BEGIN');
    const other = await pidOf(two);
    // Where the pooler has one session alone, the transaction keeps it from answering the first connection.
    const shared = next !== before || other === before || (await pidOf(one)) !== before;
    await two.query('ROLLBACK');
    if (shared) throw new PostgresFailure(`${link.server}: ${THROUGH_POOLER}`);
    for (const client of [one, two]) void client.end().catch(() => {});
  } catch (error) {
    for (const client of [one, two]) client.connection.stream.destroy();
    throw error;
  }
}

async function pidOf(client: Client): Promise<number> {
  const { rows } = await client.query<[number]>({ text: 'SELECT pg_backend_pid()', rowMode: 'array' });
  return Number(rows[0]?.[0]);
}
