import { conforms } from './conforms.js';
import { memoryWorld } from './worlds/memory-world.js';
import { advisoryWorld, leaseTableWorld } from './worlds/postgres-worlds.js';
import { redlockWorld } from './worlds/redlock-worlds.js';
import { redisClusterWorld, redisSentinelWorld, redisWorld } from './worlds/redis-worlds.js';

conforms('memory', memoryWorld);
conforms('redis', redisWorld);
conforms('redis on a Sentinel', redisSentinelWorld);
conforms('redis on a Cluster', redisClusterWorld);
conforms('redlock on five nodes', redlockWorld(5));
conforms('postgres with a lease table', leaseTableWorld);
conforms('postgres with advisory locks', advisoryWorld);
