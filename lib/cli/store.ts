import { Cluster } from 'ioredis';
import type { LockBackend } from '../contracts/lock-backend.js';
import type { RedisConnection } from '../options/redis-connection.js';
import { UsageError } from './failure.js';
import type { BackendName, GlobalOptions } from './global-options.js';

/** Loads the client library of the backend, an optional peer, only when it is asked for. */
const OPENERS: Readonly<Record<Exclude<BackendName, 'redis'>, (url: string) => Promise<LockBackend>>> = {
  postgres: async (url) => (await import('../backends/postgres/index.js')).leaseTable(url),
  mysql: async (url) => (await import('../backends/mysql/index.js')).leaseTable(url),
  etcd: async (urls) => (await import('../backends/etcd/index.js')).etcd({ endpoints: urls.split(',') }),
  zookeeper: async (servers) => (await import('../backends/zookeeper/index.js')).zookeeper({ servers }),
};

/** What keeps the locks, by the options; `close` ends what the module does not. */
export interface Store {
  readonly module: { readonly redis: RedisConnection } | { readonly backend: LockBackend };
  readonly close: () => void;
}

/** @throws UsageError for options that do not go together, or a backend whose client library is not installed */
export async function openStore({ redis, cluster, backend, url }: GlobalOptions): Promise<Store> {
  if (backend === 'redis') {
    if (url !== undefined) throw new UsageError('--url is for other backends; give --redis <url>, or --backend <name>');
    if (!cluster) return { module: { redis }, close: () => {} };
    const client = clusterAt(redis);
    return { module: { redis: client }, close: () => client.disconnect() };
  }
  if (url === undefined) throw new UsageError(`--backend ${backend} needs --url <url>`);
  if (cluster) throw new UsageError(`--cluster is for Redis; leave it out with --backend ${backend}`);
  try {
    return { module: { backend: await OPENERS[backend](url) }, close: () => {} };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const [, missing] = /Cannot find package '([^']+)'/.exec(message) ?? [];
    if (code !== 'ERR_MODULE_NOT_FOUND' || missing === undefined) throw error;
    throw new UsageError(`--backend ${backend} needs the package ${missing}: npm install ${missing}`, { cause: error });
  }
}

/** All nodes take the user and the password of the URL. */
function clusterAt(url: string): Cluster {
  if (!URL.canParse(url)) throw new UsageError(`--redis is "${url}"; give a URL such as redis://localhost:6379`);
  const { hostname, port, username, password, protocol } = new URL(url);
  const client = new Cluster([{ host: hostname, port: Number(port || 6379) }], {
    redisOptions: {
      ...(username && { username: decodeURIComponent(username) }),
      ...(password && { password: decodeURIComponent(password) }),
      ...(protocol === 'rediss:' && { tls: {} }),
    },
  });
  // Every command fails with its cause.
  return client.on('error', () => {});
}
