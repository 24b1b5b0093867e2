import type { EventEmitter } from 'node:events';
import type { Cluster, Redis, RedisOptions } from 'ioredis';

/**
 * An ioredis client or Cluster of the application, a client of node-redis, or ioredis options or a URL from which the
 * library makes an ioredis client.
 */
export type RedisConnection = Redis | Cluster | NodeRedisConnection | RedisOptions | string;

/**
 * A client of node-redis 5 or 6: what `createClient`, `createSentinel` or `createCluster` of `redis` or `@redis/client`
 * returns. The application connects it and closes it.
 */
export interface NodeRedisConnection extends EventEmitter {
  /** Whether `connect()` was called, and neither `close()` nor `destroy()` since. */
  readonly isOpen: boolean;
  /** Sends one command; each kind of client takes other arguments. */
  sendCommand(...args: never[]): Promise<unknown>;
  /** Closes the connection at once. */
  destroy(): unknown;
}
