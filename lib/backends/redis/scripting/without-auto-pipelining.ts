import type { Cluster } from 'ioredis';
import type { RedisClient } from '../redis-client.js';

/**
 * The client, for scripts. With `enableAutoPipelining`, ioredis 5 sends the scripts of one turn of the event loop to a
 * Cluster as one pipeline, whichever slots their keys lie in: it takes the digest of a script for its key. Such a
 * Cluster gets them one by one.
 */
export function withoutAutoPipelining(client: RedisClient): RedisClient {
  if (!client.isCluster || !client.options.enableAutoPipelining) return client;
  const cluster = client as Cluster;
  return Object.create(cluster, {
    options: { value: { ...cluster.options, enableAutoPipelining: false } },
    // Whatever it keeps of a command, it keeps itself.
    sendCommand: { value: cluster.sendCommand.bind(cluster) },
  }) as Cluster;
}
