import type { LockBackend } from 'nest-redis-lock';
import { startEtcdCluster } from '../servers/etcd-server.js';
import { startMariadbServer } from '../servers/mariadb-server.js';
import { startPostgresServer } from '../servers/postgres-server.js';
import { startRedisServer } from '../servers/redis-server.js';
import { startZooKeeperServer } from '../servers/zookeeper-server.js';
import { LOCK_TTL, type LockBackendName } from './shop-facts.js';

/** How many Redis a redlock of the demo has, and how many of them a restart strikes. */
const NODES = 5;
const RESTARTED_NODES = 2;

/** The server, or servers, that keep the locks of the demo. */
export interface LockServer {
  /** Where the shop finds it: URLs with commas between them. */
  readonly url: string;
  /** Ends the server, and starts it again at the same place: Redis without its data, the others with it. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts the store of this name. */
export function startLockServer(name: LockBackendName): Promise<LockServer> {
  return STARTERS[name]();
}

/**
 * Opens the store at `url` beside the shop, as any other application could. Stores that keep locks for a session get
 * the lease as the length of the session, as in the shop.
 */
export function openLockStore(name: LockBackendName, url: string): Promise<LockBackend> {
  return OPENERS[name](url);
}

const STARTERS: Readonly<Record<LockBackendName, () => Promise<LockServer>>> = {
  redis: startRedis,
  redlock: startNodes,
  postgres: startPostgres,
  'postgres-advisory': startPostgres,
  mysql: startMariadbServer,
  'mysql-get-lock': startMariadbServer,
  etcd: startEtcd,
  zookeeper: startZooKeeper,
};

const OPENERS: Readonly<Record<LockBackendName, (url: string) => Promise<LockBackend>>> = {
  redis: async (url) => (await import('nest-redis-lock')).redis(url),
  redlock: async (urls) => (await import('nest-redis-lock/redlock')).redlock(urls.split(',')),
  postgres: async (url) => (await import('nest-redis-lock/postgres')).leaseTable(url),
  'postgres-advisory': async (url) => (await import('nest-redis-lock/postgres')).advisory(url),
  mysql: async (url) => (await import('nest-redis-lock/mysql')).leaseTable(url),
  'mysql-get-lock': async (url) => (await import('nest-redis-lock/mysql')).getLock(url),
  etcd: async (urls) => (await import('nest-redis-lock/etcd')).etcd({ endpoints: urls.split(','), ttl: LOCK_TTL }),
  zookeeper: async (servers) =>
    (await import('nest-redis-lock/zookeeper')).zookeeper({ servers, sessionTimeout: LOCK_TTL }),
};

async function startRedis(): Promise<LockServer> {
  let server = await startRedisServer();
  const { url, port } = server;
  const restart = async () => {
    await server.stop();
    server = await startRedisServer({ port });
  };
  return { url, restart, stop: () => server.stop() };
}

async function startNodes(): Promise<LockServer> {
  const nodes = await Promise.all(Array.from({ length: NODES }, startRedis));
  const restart = async () => {
    await Promise.all(nodes.slice(0, RESTARTED_NODES).map((node) => node.restart()));
  };
  const stop = async () => {
    await Promise.all(nodes.map((node) => node.stop()));
  };
  return { url: nodes.map(({ url }) => url).join(','), restart, stop };
}

/** A lease is a commit: one that was answered must survive the restart. */
function startPostgres(): Promise<LockServer> {
  return startPostgresServer({ synchronous_commit: 'on' });
}

async function startEtcd(): Promise<LockServer> {
  const [member] = await startEtcdCluster(1);
  if (!member) throw new Error('etcd started no member');
  const restart = async () => {
    await member.process.stop();
    await member.restart();
  };
  return { url: member.url, restart, stop: () => member.stop() };
}

async function startZooKeeper(): Promise<LockServer> {
  const server = await startZooKeeperServer();
  return { url: server.connection, restart: () => server.restart(), stop: () => server.stop() };
}
