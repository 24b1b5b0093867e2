import { redisScript } from '../../redis/scripting/redis-script.js';

/**
 * Reads the state of a name at this node.
 *
 * KEYS: lock, fence, wanted.
 * Returns {owner or an empty string, PTTL, first token not yet issued or an empty string, waiters}.
 */
export const INSPECT = redisScript(`
local owner, waiting = redis.call('GET', KEYS[1]), redis.pcall('HLEN', KEYS[3])
return {
  owner or '', redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '', type(waiting) == 'number' and waiting or 0
}
`);
