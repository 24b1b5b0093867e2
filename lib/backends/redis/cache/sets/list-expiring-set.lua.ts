import { redisScript } from '../../scripting/redis-script.js';
import { DROP_EXPIRED } from './expiring-set.lua.js';

/**
 * KEYS: 1 set.
 * Returns the members, ordered by when they expire.
 */
export const LIST_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
return redis.call('ZRANGE', KEYS[1], 0, -1)
`);
