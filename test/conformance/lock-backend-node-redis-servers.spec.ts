import { conforms } from './conforms.js';
import { nodeRedis6ClusterWorld, nodeRedis6SentinelWorld } from './redis-worlds.js';

conforms('redis on a Cluster by node-redis 6', nodeRedis6ClusterWorld);
conforms('redis on a Sentinel by node-redis 6', nodeRedis6SentinelWorld);
