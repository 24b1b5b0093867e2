import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { createConnection } from 'mysql2/promise';
import pg from 'pg';
import { rowIdOf } from '../../../lib/backends/mysql/lock-table.js';
import { keysOf } from '../../support/etcd-requests.js';
import { pausePostgres } from '../../support/paused-postgres.js';
import { type EtcdMember, startEtcdCluster } from '../../support/servers/etcd-server.js';
import { startMariadbServer } from '../../support/servers/mariadb-server.js';
import { startPostgresServer } from '../../support/servers/postgres-server.js';
import { type RedisServer, startRedisServer } from '../../support/servers/redis-server.js';
import { startZooKeeperServer } from '../../support/servers/zookeeper-server.js';
import { SETTINGS, STANDSTILL } from './settings.js';

/** The store of the locks, and the mischief that only this kind of store knows. */
export interface Store extends AsyncDisposable {
  /** Of its servers; a contender gets them in this order, some behind proxies. */
  readonly ports: readonly number[];
  /** Text of the requests of locks: a proxy breaks the connection at the next one. */
  readonly request: string;
  /** How long (ms) the store keeps a name, or a place in the queue, whose process is gone, at most. */
  readonly lease: number;
  /**
   * Whether a lock ends at once when its connection breaks, before its holder can know: a refused write proves no
   * violation then, and the holder must learn of the loss soon after.
   */
  readonly abrupt?: boolean;
  /** What can be done to the store, by name. */
  readonly faults: Readonly<Record<string, () => Promise<unknown>>>;
  /** What is left of locks and queues. */
  leftovers(): Promise<readonly string[]>;
  /** What would stay for ever. */
  endless(): Promise<readonly string[]>;
}

export const BACKENDS = [
  'redis',
  'redlock',
  'postgres',
  'postgres-advisory',
  'mysql',
  'mysql-get-lock',
  'etcd',
  'zookeeper',
] as const;
export type Backend = (typeof BACKENDS)[number];

const STARTS: Readonly<Record<Backend, () => Promise<Store>>> = {
  redis: startRedisStore,
  redlock: startRedlockStore,
  postgres: startPostgresStore,
  'postgres-advisory': startAdvisoryStore,
  mysql: startMysqlStore,
  'mysql-get-lock': startGetLockStore,
  etcd: startEtcdStore,
  zookeeper: startZooKeeperStore,
};

export function startStore(backend: Backend): Promise<Store> {
  return STARTS[backend]();
}

async function startRedisStore(): Promise<Store> {
  const server = await startRedisServer();
  const admin = new Redis({ host: '127.0.0.1', port: server.port });
  const onlooker = new RedisOnlooker([admin]);
  return {
    ports: [server.port],
    request: 'eval',
    lease: SETTINGS.ttl.most,
    faults: {
      flush: () => admin.script('FLUSH'),
      clientKill: () => admin.call('CLIENT', 'KILL', 'TYPE', 'normal'),
      pubsubKill: () => admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub'),
    },
    leftovers: () => onlooker.leftovers(),
    endless: () => onlooker.endless(),
    [Symbol.asyncDispose]: async () => {
      admin.disconnect();
      await server.stop();
    },
  };
}

const NODES = 3;
/**
 * How long (ms) a node grants nothing after its start; see `contending-stores.mjs`. One node fails at a time: they
 * restart with this time and the longest lease between them, lest two of three have forgotten a lock, and none stands
 * still then, because a lock that it did not take meanwhile is on two alone.
 */
const RESTART_DELAY = 2_000;

async function startRedlockStore(): Promise<Store> {
  const servers = await Promise.all(Array.from({ length: NODES }, () => startRedisServer()));
  const admins = servers.map(({ port }) => new Redis({ host: '127.0.0.1', port }));
  for (const admin of admins) admin.on('error', () => {});
  const onlooker = new RedisOnlooker(admins);
  let turn = 0;
  let failing: Promise<unknown> = Promise.resolve();
  const afterOthers = (fail: () => Promise<void>) => () => (failing = failing.then(fail));
  const restartNext = async () => {
    const index = turn++ % NODES;
    const { port, stop } = servers[index] as RedisServer;
    await stop();
    servers[index] = await startRedisServer({ port });
    await sleep(RESTART_DELAY + SETTINGS.ttl.most);
  };
  return {
    ports: servers.map(({ port }) => port),
    request: 'eval',
    lease: RESTART_DELAY + SETTINGS.ttl.most,
    faults: {
      nodeStop: afterOthers(async () => {
        const { process } = servers[turn++ % NODES] as RedisServer;
        process.pause();
        await sleep(STANDSTILL);
        process.resume();
        await sleep(SETTINGS.ttl.most);
      }),
      nodeRestart: afterOthers(restartNext),
    },
    leftovers: () => onlooker.leftovers(),
    endless: () => onlooker.endless(),
    [Symbol.asyncDispose]: async () => {
      for (const admin of admins) admin.disconnect();
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}

/** Looks at the keys of one or several Redis servers. */
class RedisOnlooker {
  constructor(private readonly clients: readonly Redis[]) {}

  /** The keys of locks and queues. Fences, labels and notes of versions stay until they expire. */
  async leftovers(): Promise<readonly string[]> {
    return (await this.keys()).map(({ key }) => key).filter((key) => !/(:fence|:label|versions)$/.test(key));
  }

  /** The keys that never expire. */
  async endless(): Promise<readonly string[]> {
    const keys = await this.keys();
    const expiries = await Promise.all(keys.map(({ client, key }) => client.pttl(key)));
    return keys.filter((_, index) => expiries[index] === -1).map(({ key }) => key);
  }

  private async keys(): Promise<readonly { client: Redis; key: string }[]> {
    const ofEach = this.clients.map(async (client) => (await client.keys('*')).map((key) => ({ client, key })));
    return (await Promise.all(ofEach)).flat();
  }
}

const TABLE = 'nest_redis_lock';
const POSTGRES_LEASES = `SELECT l.owner AS what FROM ${TABLE}.locks AS l WHERE l.expires_at > clock_timestamp()
UNION ALL SELECT w.ticket FROM ${TABLE}.waiters AS w WHERE w.seen_at > clock_timestamp() - interval '5 s'`;
const ADVISORY_LOCKS = `SELECT l.pid::text AS what FROM pg_locks AS l WHERE l.locktype = 'advisory'`;

function startPostgresStore(): Promise<Store> {
  return startOnPostgres({ lease: SETTINGS.ttl.most, leftovers: POSTGRES_LEASES });
}

/** A lock ends with its session, when the server has seen the end of the connection. */
function startAdvisoryStore(): Promise<Store> {
  return startOnPostgres({ lease: SETTINGS.ttl.most, leftovers: ADVISORY_LOCKS, abrupt: true });
}

async function startOnPostgres({ leftovers, ...traits }: Pick<Store, 'lease' | 'abrupt'> & { leftovers: string }) {
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
        postgresRowsOf(
          server.url,
          `SELECT pg_terminate_backend(a.pid)::text AS what FROM pg_stat_activity AS a
          WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() ORDER BY random() LIMIT 3`,
        ).catch(() => []),
    },
    leftovers: () => postgresRowsOf(server.url, leftovers),
    endless: async () => [],
    [Symbol.asyncDispose]: () => server.stop(),
  };
  return store;
}

async function postgresRowsOf(url: string, text: string): Promise<readonly string[]> {
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

/** Labels of processes are rows, too, and stay until they expire. */
const NAMES = SETTINGS.names.map((name) => `'${name}'`).join(', ');
const MYSQL_LEASES = `SELECT name AS what FROM nest_redis_lock WHERE expires_at > NOW(6) AND name IN (${NAMES})`;
const LOCKS_IN_USE = SETTINGS.names
  .map((name) => `SELECT '${name}' AS what FROM DUAL WHERE IS_USED_LOCK('${rowIdOf(undefined, name)}') IS NOT NULL`)
  .join(' UNION ALL ');

function startMysqlStore(): Promise<Store> {
  return startOnMysql({ request: 'nest_redis_lock', lease: SETTINGS.ttl.most, leftovers: MYSQL_LEASES });
}

/** A lock ends with its session, when the server has seen the end of the connection. */
function startGetLockStore(): Promise<Store> {
  return startOnMysql({ request: '_LOCK(', lease: SETTINGS.ttl.most, leftovers: LOCKS_IN_USE, abrupt: true });
}

async function startOnMysql({
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
        const ids = await mysqlRowsOf(server.url, `${sessions} ORDER BY RAND() LIMIT 3`).catch(() => []);
        // One that has ended meanwhile is an error.
        for (const id of ids) await mysqlRowsOf(server.url, `KILL CONNECTION ${id}`).catch(() => {});
      },
    },
    leftovers: () => mysqlRowsOf(server.url, leftovers),
    endless: async () => [],
    [Symbol.asyncDispose]: () => server.stop(),
  };
}

async function mysqlRowsOf(uri: string, text: string): Promise<readonly string[]> {
  const client = await createConnection({ uri });
  client.on('error', () => {});
  try {
    const [rows] = await client.query(text);
    return Array.isArray(rows) ? rows.map((row) => String((row as { what: unknown }).what)) : [];
  } finally {
    await client.end().catch(() => {});
  }
}

/** The session of a contender (ms): about the longest standstill of one, see `contending-stores.mjs`. */
const ETCD_SESSION = 2_000;
/** etcd ends a lease up to a second late. */
const LATE = 1_000;

async function startEtcdStore(): Promise<Store> {
  const [server] = (await startEtcdCluster(1)) as [EtcdMember];
  return {
    ports: [Number(new URL(server.url).port)],
    request: '/v3/kv/txn',
    lease: ETCD_SESSION + LATE,
    faults: {
      serverStop: async () => {
        server.process.pause();
        await sleep(STANDSTILL);
        server.process.resume();
      },
      serverRestart: async () => {
        await server.process.stop();
        await server.restart();
      },
    },
    leftovers: async () =>
      (await keysOf(server.url)).map(({ key }) => key).filter((key) => /\/(lock|wait)\//.test(key)),
    // One key for all names stays: where their fencing tokens begin.
    endless: async () =>
      (await keysOf(server.url))
        .filter(({ key, lease }) => lease === undefined && !key.endsWith('/first-token'))
        .map(({ key }) => key),
    [Symbol.asyncDispose]: () => server.stop(),
  };
}

/** The session of a contender (ms): less than the longest standstill of one, see `contending-stores.mjs`. */
const ZOOKEEPER_SESSION = 1_500;
/** The server ends sessions in steps of its tick (ms). */
const TICK = 500;

async function startZooKeeperStore(): Promise<Store> {
  const server = await startZooKeeperServer({ tickTime: TICK });
  return {
    ports: [server.port],
    request: '/locks/',
    lease: ZOOKEEPER_SESSION + 2 * TICK,
    faults: {
      serverStop: async () => {
        server.process.pause();
        await sleep(STANDSTILL);
        server.process.resume();
      },
      serverRestart: () => server.restart(),
    },
    // Each node of a ticket belongs to a session; the parents of names are removed when they are empty.
    leftovers: async () => (await server.ask('dump')).split('\n').filter((line) => line.includes('/locks/')),
    endless: async () => [],
    [Symbol.asyncDispose]: () => server.stop(),
  };
}
