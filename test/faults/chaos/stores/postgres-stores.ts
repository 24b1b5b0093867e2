import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { pausePostgres } from '../../../support/paused-postgres.js';
import { startPostgresServer } from '../../../support/servers/postgres-server.js';
import { SETTINGS, STANDSTILL } from '../settings.js';
import type { Store } from './store.js';

const TABLE = 'nest_redis_lock';
const LEASES = `SELECT l.owner AS what FROM ${TABLE}.locks AS l WHERE l.expires_at > clock_timestamp()
UNION ALL SELECT w.ticket FROM ${TABLE}.waiters AS w WHERE w.seen_at > clock_timestamp() - interval '5 s'`;
const ADVISORY_LOCKS = `SELECT l.pid::text AS what FROM pg_locks AS l WHERE l.locktype = 'advisory'`;

export function startPostgresStore(): Promise<Store> {
  return startStore({ lease: SETTINGS.ttl.most, leftovers: LEASES });
}

/** A lock ends with its session, when the server has seen the end of the connection. */
export function startAdvisoryStore(): Promise<Store> {
  return startStore({ lease: SETTINGS.ttl.most, leftovers: ADVISORY_LOCKS, abrupt: true });
}

async function startStore({ leftovers, ...traits }: Pick<Store, 'lease' | 'abrupt'> & { leftovers: string }) {
  // A restart ends the server as a crash does: what it has answered must survive that.
  const server = await startPostgresServer({ synchronous_commit: 'on' });
  const store: Store = {
    ...traits,
    ports: [server.port],
    request: TABLE,
    faults: {
      serverStop: async () => {
        const resume = await pausePostgres(server);
        await sleep(STANDSTILL);
        await resume();
      },
      serverRestart: () => server.restart(),
      // The server may be restarting.
      sessionKill: () =>
        rowsOf(
          server.url,
          `SELECT pg_terminate_backend(a.pid)::text AS what FROM pg_stat_activity AS a
          WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() ORDER BY random() LIMIT 3`,
        ).catch(() => []),
    },
    leftovers: () => rowsOf(server.url, leftovers),
    endless: async () => [],
    [Symbol.asyncDispose]: () => server.stop(),
  };
  return store;
}

async function rowsOf(url: string, text: string): Promise<readonly string[]> {
  const client = new pg.Client(url);
  client.on('error', () => {});
  try {
    await client.connect();
    const { rows } = await client.query<{ what: string }>(text);
    return rows.map(({ what }) => what);
  } finally {
    await client.end().catch(() => {});
  }
}
