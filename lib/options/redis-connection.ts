import type { Cluster, Redis, RedisOptions } from 'ioredis';

/** An ioredis client or Cluster of the application; or ioredis options or a URL, from which a client is made. */
export type RedisConnection = Redis | Cluster | RedisOptions | string;
