import type { Cluster, Redis, RedisOptions } from 'ioredis';
import { reconnectDelay, type RedisClient } from '../redis-client.js';

/** A connection for messages retries without end, whatever the options of the client that it is copied from. */
const SUBSCRIBER = {
  maxRetriesPerRequest: null,
  retryStrategy: reconnectDelay,
  sentinelRetryStrategy: reconnectDelay,
  enableReadyCheck: true,
  enableOfflineQueue: true,
  autoResubscribe: true,
  // A subscriber sends no command that would make a lazy client connect.
  lazyConnect: false,
  // Without commands, only TCP notices that the other end is gone.
  keepAlive: 10_000,
} satisfies RedisOptions;

/**
 * Makes another connection to the same server, or to one master of the Cluster; `undefined` while no node is known. In a
 * Cluster it ends with its first loss, so that the loss is noticed: the subscriber of ioredis for a whole Cluster moves
 * to another node silently and misses messages meanwhile.
 */
export function connectionForMessages(client: RedisClient, options: RedisOptions = {}): Redis | undefined {
  const subscriber = client.isCluster
    ? masterOf(client as Cluster)?.duplicate({ ...SUBSCRIBER, ...options, retryStrategy: () => null })
    : (client as Redis).duplicate({ ...SUBSCRIBER, ...options });
  // ioredis prints errors without a listener; the subscriber reports the loss itself.
  subscriber?.on('error', () => {});
  return subscriber;
}

function masterOf(cluster: Cluster): Redis | undefined {
  const masters = cluster.nodes('master');
  return masters[Math.floor(Math.random() * masters.length)];
}
