import { Redis, type Cluster, type RedisOptions } from 'ioredis';
import { LockConfigError } from '../../lock/lock-errors.js';

/** A client of the user's, options or a URL to make one of our own with. */
export type RedisConnection = Redis | Cluster | RedisOptions | string;

export type RedisClient = Redis | Cluster;

/** A command waits for one reconnect and then fails: a caller must hear soon that Redis is down. */
const OWN_CLIENT = {
  maxRetriesPerRequest: 1,
  retryStrategy: (attempt: number) => Math.min(25 * 2 ** Math.min(attempt, 5), 500) * (0.5 + Math.random() / 2),
  connectTimeout: 5_000,
  // How long a client that is reconnecting keeps the process alive after it was closed.
  disconnectTimeout: 500,
} satisfies RedisOptions;

const REPLIES = { replyMapping: 'legacy' } as const;

export function isRedisClient(connection: RedisConnection): connection is RedisClient {
  // By shape, because two majors of ioredis in one application are two classes.
  return typeof connection === 'object' && 'evalsha' in connection && typeof connection.evalsha === 'function';
}

export function createRedisClient(connection: RedisOptions | string): Redis {
  if (typeof connection === 'string') return new Redis(requireRedisUrl(connection), { ...OWN_CLIENT, ...REPLIES });
  if (typeof connection !== 'object' || connection === null) {
    throw new LockConfigError(
      `Option "redis" is ${String(connection)}; give an ioredis client, a Cluster, RedisOptions or a redis:// URL`,
    );
  }
  return new Redis({ ...OWN_CLIENT, ...connection, ...REPLIES });
}

function requireRedisUrl(url: string): string {
  if (/^rediss?:\/\/./.test(url) || url.startsWith('/')) return url;
  const shown = url.replace(/\/\/[^@/]*@/, '//***@');
  throw new LockConfigError(
    `Option "redis" is "${shown}"; give a URL that begins with redis:// or rediss://, or the path of a socket`,
  );
}
