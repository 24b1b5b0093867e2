import { conforms } from './conforms.js';
import { nodeRedis5World, nodeRedis6ClusterWorld, nodeRedis6SentinelWorld, nodeRedis6World } from './redis-worlds.js';

conforms('redis by node-redis 6', nodeRedis6World);
conforms('redis by node-redis 5', nodeRedis5World);
conforms('redis on a Cluster by node-redis 6', nodeRedis6ClusterWorld);
conforms('redis on a Sentinel by node-redis 6', nodeRedis6SentinelWorld);
