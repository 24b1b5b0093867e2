import { redisScript } from '../../scripting/redis-script.js';
import { DROP_EXPIRED } from './expiring-set.lua.js';

/**
 * KEYS: 1 set.
 * Returns how many members there are.
 */
export const COUNT_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
return redis.call('ZCARD', KEYS[1])
`);
