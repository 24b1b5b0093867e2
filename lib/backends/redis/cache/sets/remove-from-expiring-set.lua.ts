import { redisScript } from '../../scripting/redis-script.js';
import { DROP_EXPIRED, EXPIRE_WITH_LAST } from './expiring-set.lua.js';

/**
 * KEYS: 1 set. ARGV: the members.
 * Returns the number of members removed.
 */
export const REMOVE_FROM_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
local removed = 0
for i = 1, #ARGV do removed = removed + redis.call('ZREM', KEYS[1], ARGV[i]) end
${EXPIRE_WITH_LAST}
return removed
`);
