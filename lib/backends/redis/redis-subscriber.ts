import { Cluster, type Redis, type RedisOptions } from 'ioredis';
import type { RedisClient } from './redis-client.js';

/** A connection for messages goes on connecting for as long as it takes: meanwhile others do without. */
const SUBSCRIBER = {
  maxRetriesPerRequest: null,
  enableReadyCheck: true,
  enableOfflineQueue: true,
  autoResubscribe: true,
  // Whoever only waits for messages sends no command that would connect.
  lazyConnect: false,
  // Nothing is ever asked on it, so that nobody else would notice that the other end is gone.
  keepAlive: 10_000,
} as const;

/**
 * Another connection to the same server, or to one master of the Cluster, of which every loss is told: that of a Cluster as a whole moves to
 * another node without a word, and what is published meanwhile is missed. `undefined` where no node is known yet; one to a Cluster
 * ends when it is lost.
 */
export function connectionForMessages(client: RedisClient, options: RedisOptions = {}): Redis | undefined {
  if (!client.isCluster) return subscriberOf(client, options) as Redis;
  const masters = (client as Cluster).nodes('master');
  const node = masters[Math.floor(Math.random() * masters.length)];
  const subscriber = node?.duplicate({ ...SUBSCRIBER, ...options, retryStrategy: () => null });
  subscriber?.on('error', () => {});
  return subscriber;
}

/** Another connection to the same servers, for messages. It prints no errors. `options` are for one that is not to a Cluster. */
export function subscriberOf(client: RedisClient, options: RedisOptions = {}): RedisClient {
  const subscriber =
    client instanceof Cluster || client.isCluster
      ? (client as Cluster).duplicate([], { enableOfflineQueue: true, lazyConnect: false })
      : client.duplicate({ ...SUBSCRIBER, ...options });
  subscriber.on('error', () => {});
  return subscriber;
}
