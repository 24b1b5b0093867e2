import { createPool } from 'mysql2';
import { createConnection } from 'mysql2/promise';
import { getLock, leaseTable } from 'nest-redis-lock/mysql';
import { startMariadbServer } from '../../../dist-sample/servers/mariadb-server.js';
import { LEASE } from '../peers/connecting.mjs';
import { ours } from '../worker/lock-service.mjs';
import { FREE_1, FREE_100, HOT_4_1, HOT_4_25, verrou, VERROU_TABLE } from './loads.mjs';

export const versions = new URL('./packages.json', import.meta.url);

const POOL = 10;
const IN_MILLISECONDS = 'UTC_TIMESTAMP(6) + INTERVAL ? * 1000 MICROSECOND';

const BARE_TABLE = `
CREATE TABLE bare (name varchar(255) PRIMARY KEY, owner varchar(255) NOT NULL, token bigint NOT NULL,
expires_at datetime(6) NOT NULL)`;

const TAKE = `
INSERT INTO bare (name, owner, token, expires_at) VALUES (?, ?, 1, ${IN_MILLISECONDS})
ON DUPLICATE KEY UPDATE
token = IF(expires_at <= UTC_TIMESTAMP(6), LAST_INSERT_ID(token + 1), token),
owner = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(owner), owner),
expires_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(expires_at), expires_at)`;

const FREE = 'UPDATE bare SET expires_at = UTC_TIMESTAMP(6) WHERE name = ? AND owner = ?';

export async function start() {
  const server = await startMariadbServer();
  const connection = await createConnection(server.url);
  await connection.query(BARE_TABLE);
  await connection.query(VERROU_TABLE);
  await connection.end();
  return { server: { url: server.url }, stop: () => server.stop() };
}

export const peers = {
  /** The two statements that a lease in a table needs at least: it neither waits nor renews. */
  bare: async ({ server }) => {
    const pool = createPool({ uri: server.url, connectionLimit: POOL }).promise();
    let holds = 0;
    return async (key, body) => {
      const owner = `${process.pid}:${holds++}`;
      const [{ affectedRows }] = await pool.query(TAKE, [key, owner, LEASE]);
      if (affectedRows === 0) throw new Error('busy');
      try {
        return await body();
      } finally {
        await pool.query(FREE, [key, owner]);
      }
    };
  },
  verrou: async ({ server, modules }) =>
    verrou(modules, ({ MysqlDialect }) => {
      return new MysqlDialect({ pool: createPool({ uri: server.url, connectionLimit: POOL }) });
    }),
  ours: async ({ server }) => ours(leaseTable({ uri: server.url, connectionLimit: POOL })),
  'ours, getLock': async ({ server }) => ours(getLock(server.url)),
};

const FREE_LOCKS = ['bare', 'verrou', 'ours', 'ours, getLock'];
const HOT_LOCK = ['verrou', 'ours', 'ours, getLock'];

export const scenarios = [
  { ...FREE_1, among: FREE_LOCKS, targets: { bare: 0.8 } },
  { ...FREE_100, among: FREE_LOCKS, targets: { bare: 0.8 } },
  { ...HOT_4_1, among: HOT_LOCK, targets: { verrou: 10 } },
  { ...HOT_4_25, among: HOT_LOCK, targets: { verrou: 10 } },
];
