import { redisScript } from '../../scripting/redis-script.js';
import { DROP_EXPIRED } from './expiring-set.lua.js';

/**
 * KEYS: 1 set. ARGV: 1 member.
 * Returns 1 when the set has the member, else 0.
 */
export const IS_IN_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
return redis.call('ZSCORE', KEYS[1], ARGV[1]) and 1 or 0
`);
