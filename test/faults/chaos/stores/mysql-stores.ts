import { setTimeout as sleep } from 'node:timers/promises';
import { createConnection } from 'mysql2/promise';
import { rowIdOf } from '../../../../lib/backends/mysql/lock-table.js';
import { startMariadbServer } from '../../../support/servers/mariadb-server.js';
import { SETTINGS, STANDSTILL } from '../settings.js';
import type { Store } from './store.js';

/** Labels of processes are rows, too, and stay until they expire. */
const NAMES = SETTINGS.names.map((name) => `'${name}'`).join(', ');
const LEASES = `SELECT name AS what FROM nest_redis_lock WHERE expires_at > NOW(6) AND name IN (${NAMES})`;
const LOCKS_IN_USE = SETTINGS.names
  .map((name) => `SELECT '${name}' AS what FROM DUAL WHERE IS_USED_LOCK('${rowIdOf(undefined, name)}') IS NOT NULL`)
  .join(' UNION ALL ');

export function startMysqlStore(): Promise<Store> {
  return startStore({ request: 'nest_redis_lock', lease: SETTINGS.ttl.most, leftovers: LEASES });
}

/** A lock ends with its session, when the server has seen the end of the connection. */
export function startGetLockStore(): Promise<Store> {
  return startStore({ request: '_LOCK(', lease: SETTINGS.ttl.most, leftovers: LOCKS_IN_USE, abrupt: true });
}

async function startStore({
  leftovers,
  ...traits
}: Pick<Store, 'request' | 'lease' | 'abrupt'> & { leftovers: string }): Promise<Store> {
  // What the server has answered must survive the end of its process.
  const server = await startMariadbServer({ args: ['--innodb-flush-log-at-trx-commit=2'] });
  return {
    ...traits,
    ports: [server.port],
    faults: {
      serverStop: async () => {
        server.process.pause();
        await sleep(STANDSTILL);
        server.process.resume();
      },
      serverRestart: () => server.restart(),
      sessionKill: async () => {
        const sessions = `SELECT id AS what FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND db = 'test'`;
        // The server may be restarting.
        const ids = await rowsOf(server.url, `${sessions} ORDER BY RAND() LIMIT 3`).catch(() => []);
        // One that has ended meanwhile is an error.
        for (const id of ids) await rowsOf(server.url, `KILL CONNECTION ${id}`).catch(() => {});
      },
    },
    leftovers: () => rowsOf(server.url, leftovers),
    endless: async () => [],
    [Symbol.asyncDispose]: () => server.stop(),
  };
}

async function rowsOf(uri: string, text: string): Promise<readonly string[]> {
  const client = await createConnection({ uri });
  client.on('error', () => {});
  try {
    const [rows] = await client.query(text);
    return Array.isArray(rows) ? rows.map((row) => String((row as { what: unknown }).what)) : [];
  } finally {
    await client.end().catch(() => {});
  }
}
