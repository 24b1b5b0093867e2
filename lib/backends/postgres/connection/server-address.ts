import pg from 'pg';
import type { PoolConfig } from 'pg';

/** The server as messages name it, without a password. */
export function serverOf(options: PoolConfig): string {
  // A client that is never connected reads the options, the URL and the environment as every other does.
  const { host, port, database } = new pg.Client(options);
  return `PostgreSQL at ${host.startsWith('/') ? host : `${host}:${port}`} (database "${database}")`;
}
