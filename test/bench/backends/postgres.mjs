import { advisory, leaseTable } from 'nest-redis-lock/postgres';
import pg from 'pg';
import { startPostgresServer } from '../../../dist-sample/servers/postgres-server.js';
import { LEASE } from '../peers/connecting.mjs';
import { ours } from '../worker/lock-service.mjs';
import { FREE_1, FREE_100, HOT_4_1, HOT_4_25, verrou, VERROU_TABLE } from './loads.mjs';

export const versions = new URL('./packages.json', import.meta.url);

const POOL = 10;
const POOL_OF_ADVISORY = 20;

const BARE_TABLE = `
CREATE TABLE bare (name text PRIMARY KEY, owner text NOT NULL, token bigint NOT NULL, expires_at timestamptz NOT NULL)
WITH (fillfactor = 50)`;

const TAKE = `
INSERT INTO bare (name, owner, token, expires_at) VALUES ($1, $2, 1, clock_timestamp() + $3::int * interval '1 ms')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = bare.token + 1, expires_at = excluded.expires_at
WHERE bare.expires_at <= clock_timestamp() RETURNING token`;

const FREE = 'UPDATE bare SET expires_at = clock_timestamp() WHERE name = $1 AND owner = $2';

export async function start() {
  const server = await startPostgresServer();
  const client = new pg.Client(server.url);
  await client.connect();
  await client.query(BARE_TABLE);
  await client.query(VERROU_TABLE.replaceAll('`', '"'));
  await client.end();
  return { server: { url: server.url }, stop: () => server.stop() };
}

export const peers = {
  /** The two statements that a lease in a table needs at least: it neither waits nor renews. */
  bare: async ({ server }) => {
    const pool = new pg.Pool({ connectionString: server.url, max: POOL });
    let holds = 0;
    return async (key, body) => {
      const owner = `${process.pid}:${holds++}`;
      const { rowCount } = await pool.query({ name: 'take', text: TAKE, values: [key, owner, LEASE] });
      if (rowCount !== 1) throw new Error('busy');
      try {
        return await body();
      } finally {
        await pool.query({ name: 'free', text: FREE, values: [key, owner] });
      }
    };
  },
  /** A blocking advisory lock on a connection of a pool. */
  'pooled advisory': async ({ server }) => {
    const pool = new pg.Pool({ connectionString: server.url, max: POOL_OF_ADVISORY });
    const call = (name) => ({ name, text: `SELECT ${name}(hashtextextended($1, 0))` });
    const [lock, unlock] = [call('pg_advisory_lock'), call('pg_advisory_unlock')];
    return async (key, body) => {
      const client = await pool.connect();
      try {
        await client.query({ ...lock, values: [key] });
        try {
          return await body();
        } finally {
          await client.query({ ...unlock, values: [key] });
        }
      } finally {
        client.release();
      }
    };
  },
  'advisory-lock': async ({ server, modules }) => {
    const { default: locksOf } = modules.require('advisory-lock');
    const lockOf = locksOf(server.url);
    return (key, body) => lockOf(key).withLock(body);
  },
  verrou: async ({ server, modules }) =>
    verrou(modules, ({ PostgresDialect }) => {
      return new PostgresDialect({ pool: new pg.Pool({ connectionString: server.url, max: POOL }) });
    }),
  ours: async ({ server }) => ours(leaseTable({ connectionString: server.url, max: POOL })),
  'ours, advisory': async ({ server }) => ours(advisory(server.url)),
};

const FREE_LOCKS = ['bare', 'pooled advisory', 'verrou', 'ours', 'ours, advisory'];
const HOT_LOCK = ['pooled advisory', 'advisory-lock', 'verrou', 'ours', 'ours, advisory'];

export const scenarios = [
  { ...FREE_1, among: FREE_LOCKS, targets: { bare: 0.85 } },
  { ...FREE_100, among: FREE_LOCKS, targets: { bare: 3 } },
  { ...HOT_4_1, among: HOT_LOCK, targets: { 'pooled advisory': 3 } },
  { ...HOT_4_25, among: HOT_LOCK, targets: { 'pooled advisory': 10, verrou: 50 } },
];
