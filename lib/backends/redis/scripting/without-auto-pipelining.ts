import { isCluster, type RedisClient, type RedisCluster } from '../redis-client.js';

/**
 * The client, for scripts. With `enableAutoPipelining`, ioredis 5 sends the scripts of one turn of the event loop to a
 * Cluster as one pipeline, although their keys may lie in different slots: it takes the digest of a script for its key.
 * On such a Cluster, scripts go one by one.
 */
export function withoutAutoPipelining(client: RedisClient): RedisClient {
  if (!isCluster(client) || !client.options.enableAutoPipelining) return client;
  return Object.create(client, {
    options: { value: { ...client.options, enableAutoPipelining: false } },
    // Bound to the Cluster, so that its state of a command stays on the Cluster and not on this object.
    sendCommand: { value: client.sendCommand?.bind(client) },
  }) as RedisCluster;
}
