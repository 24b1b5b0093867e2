import { redisScript } from '../../scripting/redis-script.js';

/**
 * Takes the lock if it is free, without a look at the queue; without a lease, only looks at it. See `oneKeySteps`.
 *
 * KEYS: 1 lock. ARGV: 1 ticket, 2 lease in ms or an empty string.
 * Returns {owner, PTTL}; the owner is an empty string where there is none.
 */
export const TAKE_ALONE = redisScript(`
local owner = redis.call('GET', KEYS[1])
if not owner and ARGV[2] ~= '' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  owner = ARGV[1]
end
return {owner or '', redis.call('PTTL', KEYS[1])}
`);
