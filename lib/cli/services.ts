import type { Cluster } from 'ioredis';
import { requireRedisConnection } from '../backends/redis/connection/connection-options.js';
import { ioredis } from '../backends/redis/connection/ioredis.js';
import { redis } from '../backends/redis/redis-backend.js';
import { openCacheEngine, CacheRuntime } from '../cache/cache-runtime.js';
import { CacheService } from '../cache/cache.service.js';
import type { LockBackend } from '../contracts/lock-backend.js';
import { LockBackends } from '../lock/line/lock-backends.js';
import { LockService } from '../lock/lock.service.js';
import type { RedisConnection } from '../options/redis-connection.js';
import { shownConnection } from '../options/option-checks.js';
import { openCacheStore } from '../redis-lock.module.js';
import { resolveModuleOptions } from '../redis-lock.options.js';
import { UsageError, type GlobalOptions, type BackendName } from './options.js';

/** How long (ms) one command may take: longer than in an application, where callers wait. */
const COMMAND_TIMEOUT = 5_000;

export interface Services {
  readonly locks: LockService;
  readonly cache: CacheService;
}

/**
 * Runs `body` with services as those of an application, but without its check at start-up, which writes keys; then
 * closes them.
 *
 * @throws UsageError, LockConfigError or CacheConfigError for options that it cannot take
 */
export async function withServices<T>(given: GlobalOptions, body: (services: Services) => Promise<T>): Promise<T> {
  const { module, close } = await openStore(given);
  const { prefix } = given;
  const {
    redis: connection,
    backend,
    cache,
    ...options
  } = resolveModuleOptions({
    ...module,
    ...(prefix !== undefined && { prefix }),
    commandTimeout: COMMAND_TIMEOUT,
    cache: { commandTimeout: COMMAND_TIMEOUT, defaults: { onRedisError: 'throw' } },
  });
  const main = backend ?? redis(connection as NonNullable<typeof connection>);
  const backends = new LockBackends({ ...options, main });
  const store = cache && (await openCacheStore(cache, options.prefix, main));
  const engine = store && (await openCacheEngine(store, cache, backends.logger));
  const runtime = new CacheRuntime(engine, backends.logger, undefined);
  backends.whenStopping(() => runtime.stop());
  const locks = new LockService(backends);
  try {
    return await body({ locks, cache: new CacheService(runtime) });
  } finally {
    await locks.onApplicationShutdown();
    close();
  }
}

type Opener = (url: string, where: Pick<GlobalOptions, 'kind' | 'schema' | 'table'>) => Promise<LockBackend>;

/**
 * Loads the client library of the backend, an optional peer, only when it is asked for. None creates what it looks for:
 * a missing table is an error, as its name may be wrong.
 */
const OPENERS: Readonly<Record<Exclude<BackendName, 'redis'>, Opener>> = {
  postgres: async (url, { kind, schema }) => {
    const { postgres } = await import('../backends/postgres/index.js');
    return postgres(url, { kind: kind as 'advisory', migrate: false, ...(schema !== undefined && { schema }) });
  },
  mysql: async (url, { kind, table }) => {
    const { mysql } = await import('../backends/mysql/index.js');
    return mysql(url, { kind: kind as 'getLock', createTable: false, ...(table !== undefined && { table }) });
  },
  etcd: async (urls) => (await import('../backends/etcd/index.js')).etcd({ endpoints: urls.split(',') }),
  zookeeper: async (servers) => (await import('../backends/zookeeper/index.js')).zookeeper({ servers }),
};

/** What keeps the locks, by the options; `close` ends what the module does not. */
export interface Store {
  readonly module: { readonly redis: RedisConnection } | { readonly backend: LockBackend };
  readonly close: () => void;
}

/** @throws UsageError for options that do not go together, or a backend whose client library is not installed */
export async function openStore(given: GlobalOptions): Promise<Store> {
  const { redis: server, cluster, backend, url } = given;
  requirePlace(given);
  if (backend === 'redis') {
    if (url !== undefined) throw new UsageError('--url is for other backends; give --redis <url>, or --backend <name>');
    if (!cluster) return { module: { redis: server }, close: () => {} };
    const client = clusterAt(server);
    return { module: { redis: client }, close: () => client.disconnect() };
  }
  if (url === undefined) throw new UsageError(`--backend ${backend} needs --url <url>`);
  if (cluster) throw new UsageError(`--cluster is for Redis; leave it out with --backend ${backend}`);
  try {
    return { module: { backend: await OPENERS[backend](url, given) }, close: () => {} };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const [, missing] = /^Cannot find module '([^']+)'/.exec(message) ?? [];
    if (code !== 'MODULE_NOT_FOUND' || missing === undefined) throw error;
    throw new UsageError(`--backend ${backend} needs the package ${missing}: npm install ${missing}`, { cause: error });
  }
}

/** Where the locks of an SQL server are looked for, for a line that says that there are none; empty for others. */
export function placeOf({ backend, kind = 'leaseTable', schema, table }: GlobalOptions): string {
  if (backend === 'postgres') return ` by ${kind} in the schema "${schema ?? 'nest_redis_lock'}"`;
  const ofKind = kind === 'getLock' ? 'nest_redis_lock_tokens' : 'nest_redis_lock';
  return backend === 'mysql' ? ` by ${kind} with the table "${table ?? ofKind}"` : '';
}

/** @throws UsageError for options of another backend */
function requirePlace({ backend, kind, schema, table }: GlobalOptions): void {
  const isSql = backend === 'postgres' || backend === 'mysql';
  if (kind !== undefined && !isSql) throw new UsageError('--kind is for --backend postgres or mysql; leave it out');
  if (schema !== undefined && backend !== 'postgres')
    throw new UsageError('--schema is for --backend postgres; leave it out');
  if (table !== undefined && backend !== 'mysql') throw new UsageError('--table is for --backend mysql; leave it out');
}

/** All nodes take the user and the password of the URL. */
function clusterAt(url: string): Cluster {
  if (!/^rediss?:\/\/./.test(url)) {
    throw new UsageError(`--redis is ${shownConnection(url)}; give a URL such as redis://localhost:6379`);
  }
  requireRedisConnection({ name: '--redis', ConfigError: UsageError }, url);
  const { hostname, port, username, password, protocol, pathname } = new URL(url);
  if (!/^\/?0?$/.test(pathname)) throw new UsageError('--redis names a database, but a Cluster has database 0 alone');
  const { Cluster } = ioredis({ name: '--cluster', ConfigError: UsageError });
  const client = new Cluster([{ host: hostname, port: Number(port || 6379) }], {
    redisOptions: {
      ...(username && { username: decodeURIComponent(username) }),
      ...(password && { password: decodeURIComponent(password) }),
      ...(protocol === 'rediss:' && { tls: { servername: hostname } }),
    },
  });
  // Every command fails with its cause.
  return client.on('error', () => {});
}
