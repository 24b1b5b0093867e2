import { Redis, type RedisOptions } from 'ioredis';
import { backoff } from '../../../timing/backoff.js';

/** A command waits for one reconnect and then fails, so that its caller learns soon that Redis is down. */
const OWN_CLIENT = {
  maxRetriesPerRequest: 1,
  retryStrategy: reconnectDelay,
  connectTimeout: 5_000,
  // How long a client that is reconnecting keeps the process alive after it was closed.
  disconnectTimeout: 500,
} satisfies RedisOptions;

const REPLIES = { replyMapping: 'legacy' } as const;

/** Milliseconds until the next connection attempt: at most half a second, with jitter. */
export function reconnectDelay(attempt: number): number {
  return backoff(attempt, 25, 500) * (0.5 + Math.random() / 2);
}

export function createRedisClient(connection: RedisOptions | string): Redis {
  if (typeof connection === 'string') return new Redis(connection, { ...OWN_CLIENT, ...REPLIES });
  return new Redis({ ...OWN_CLIENT, ...connection, ...REPLIES });
}
