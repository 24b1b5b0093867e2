import type { RedisOptions } from 'ioredis';
import { reconnectDelay } from '../connection/own-client.js';
import {
  isCluster,
  type RedisClient,
  type RedisCluster,
  type RedisNode,
  type RedisSubscriber,
} from '../redis-client.js';

/** A connection for messages retries without end, whatever the options of the client it is copied from say. */
const SUBSCRIBER = {
  maxRetriesPerRequest: null,
  retryStrategy: reconnectDelay,
  sentinelRetryStrategy: reconnectDelay,
  enableReadyCheck: true,
  enableOfflineQueue: true,
  // `WatchedSubscriber` subscribes on each new connection; ioredis would leave a rejection unhandled when it is closed.
  autoResubscribe: false,
  // A subscriber sends no command that would make a lazy client connect.
  lazyConnect: false,
  // Without commands, only TCP notices that the other end is gone.
  keepAlive: 10_000,
} satisfies RedisOptions;

/**
 * Makes another connection to the same server, or to one master of the Cluster; `undefined` while no node is known. In
 * a Cluster the connection ends with its first loss, so that the loss is noticed: the subscriber of ioredis for a whole
 * Cluster silently moves to another node and misses messages meanwhile.
 */
export function connectionForMessages(client: RedisClient, options: RedisOptions = {}): RedisSubscriber | undefined {
  const subscriber = isCluster(client)
    ? masterOf(client)?.duplicate({ ...SUBSCRIBER, ...options, retryStrategy: () => null })
    : client.duplicate({ ...SUBSCRIBER, ...options });
  // The listener keeps ioredis from printing errors; the subscriber reports the loss itself.
  subscriber?.on('error', () => {});
  return subscriber;
}

function masterOf(cluster: RedisCluster): RedisNode | undefined {
  const masters = cluster.nodes('master');
  return masters[Math.floor(Math.random() * masters.length)];
}
