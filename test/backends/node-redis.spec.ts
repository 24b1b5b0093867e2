import { conforms } from '../conformance/conforms.js';
import { nodeRedis5ClusterWorld, nodeRedis5SentinelWorld, nodeRedis6Resp2World } from '../conformance/redis-worlds.js';

// `npm test` has those of them that most applications use.
conforms('redis by node-redis 6 in RESP2', nodeRedis6Resp2World);
conforms('redis on a Cluster by node-redis 5', nodeRedis5ClusterWorld);
conforms('redis on a Sentinel by node-redis 5', nodeRedis5SentinelWorld);
