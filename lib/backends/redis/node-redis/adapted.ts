import type { NodeRedisConnection } from '../../../options/redis-connection.js';
import type { RedisClient } from '../redis-client.js';
import { AdaptedCluster } from './adapted-cluster.js';
import { AdaptedNode } from './adapted-node.js';
import { AdaptedSentinel } from './adapted-sentinel.js';
import { isNodeRedisCluster, isNodeRedisSentinel, type NodeRedisClient } from './node-redis-clients.js';

/** A client of node-redis in the form of ioredis. */
export function adapted(client: NodeRedisConnection): RedisClient {
  if (isNodeRedisCluster(client)) return new AdaptedCluster(client);
  if (isNodeRedisSentinel(client)) return new AdaptedSentinel(client);
  return new AdaptedNode(client as NodeRedisClient);
}
