import type { Cluster, Redis, RedisOptions } from 'ioredis';
import { reconnectDelay, type RedisClient } from '../redis-client.js';

/** A connection for messages goes on connecting for as long as it takes, whatever the client does it is made after. */
const SUBSCRIBER = {
  maxRetriesPerRequest: null,
  retryStrategy: reconnectDelay,
  sentinelRetryStrategy: reconnectDelay,
  enableReadyCheck: true,
  enableOfflineQueue: true,
  autoResubscribe: true,
  // Whoever only waits for messages sends no command that would connect.
  lazyConnect: false,
  // Nothing is ever asked on it, so that nobody else would notice that the other end is gone.
  keepAlive: 10_000,
} satisfies RedisOptions;

/**
 * Another connection to the same server, or to one master of the Cluster, of which every loss is told: that of a
 * Cluster as a whole moves to another node without a word, and what is published meanwhile is missed. `undefined` where
 * no node is known yet; one to a Cluster ends when it is lost.
 */
export function connectionForMessages(client: RedisClient, options: RedisOptions = {}): Redis | undefined {
  const subscriber = client.isCluster
    ? masterOf(client as Cluster)?.duplicate({ ...SUBSCRIBER, ...options, retryStrategy: () => null })
    : (client as Redis).duplicate({ ...SUBSCRIBER, ...options });
  // ioredis prints an error that nobody listens to; the loss is told of where the messages are.
  subscriber?.on('error', () => {});
  return subscriber;
}

function masterOf(cluster: Cluster): Redis | undefined {
  const masters = cluster.nodes('master');
  return masters[Math.floor(Math.random() * masters.length)];
}
