import { Redis, type Cluster, type RedisOptions } from 'ioredis';
import { backoff } from '../../timing/backoff.js';

export type RedisClient = Redis | Cluster;

/** A command waits for one reconnect and then fails: a caller must hear soon that Redis is down. */
const OWN_CLIENT = {
  maxRetriesPerRequest: 1,
  retryStrategy: reconnectDelay,
  connectTimeout: 5_000,
  // How long a client that is reconnecting keeps the process alive after it was closed.
  disconnectTimeout: 500,
} satisfies RedisOptions;

const REPLIES = { replyMapping: 'legacy' } as const;

/** Milliseconds until the next try to connect: at most half a second, and never in step with other processes. */
export function reconnectDelay(attempt: number): number {
  return backoff(attempt, 25, 500) * (0.5 + Math.random() / 2);
}

export function createRedisClient(connection: RedisOptions | string): Redis {
  if (typeof connection === 'string') return new Redis(connection, { ...OWN_CLIENT, ...REPLIES });
  return new Redis({ ...OWN_CLIENT, ...connection, ...REPLIES });
}
