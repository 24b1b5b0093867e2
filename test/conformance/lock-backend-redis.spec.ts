import { conforms } from './conforms.js';
import { redisClusterWorld, redisSentinelWorld, redisWorld } from './redis-worlds.js';

conforms('redis', redisWorld);
conforms('redis on a Sentinel', redisSentinelWorld);
conforms('redis on a Cluster', redisClusterWorld);
