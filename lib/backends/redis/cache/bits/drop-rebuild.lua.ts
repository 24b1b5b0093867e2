import { redisScript } from '../../scripting/redis-script.js';

/**
 * Abandons the rebuild, if it is still that of the token.
 *
 * KEYS: 1 rebuilt bits, 2 rebuilder. ARGV: 1 token.
 */
export const DROP_REBUILD = redisScript(`
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('UNLINK', KEYS[1], KEYS[2]) end
return 1
`);
