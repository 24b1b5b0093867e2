import { conforms } from './conforms.js';
import { nodeRedis5World, nodeRedis6World } from './redis-worlds.js';

conforms('redis by node-redis 6', nodeRedis6World);
conforms('redis by node-redis 5', nodeRedis5World);
