import { redisScript } from '../../scripting/redis-script.js';
import { DROP_EXPIRED } from './expiring-set.lua.js';

/**
 * KEYS: 1 set.
 * Returns the number of members.
 */
export const COUNT_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
return redis.call('ZCARD', KEYS[1])
`);
