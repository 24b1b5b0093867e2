import { redisScript } from '../../scripting/redis-script.js';

/**
 * Sets bits in the copy that a rebuild fills, and renews the lease of the rebuild.
 *
 * KEYS: 1 rebuilt bits, 2 rebuilder. ARGV: 1 token, 2 lease in ms, then the positions.
 * Returns 1, or 0 when the rebuild has lost its lease.
 */
export const ADD_TO_REBUILD = redisScript(`
if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
for i = 3, #ARGV do redis.call('SETBIT', KEYS[1], ARGV[i], 1) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
`);
