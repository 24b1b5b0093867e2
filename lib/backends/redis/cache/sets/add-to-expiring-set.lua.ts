import { redisScript } from '../../scripting/redis-script.js';
import { DROP_EXPIRED, EXPIRE_WITH_LAST } from './expiring-set.lua.js';

/**
 * Adds members, or keeps existing ones, for a time from now.
 *
 * KEYS: 1 set. ARGV: 1 time to live in ms, then the members.
 * Returns the number of new members.
 */
export const ADD_TO_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
local added = 0
for i = 2, #ARGV do added = added + redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[i]) end
${EXPIRE_WITH_LAST}
return added
`);
