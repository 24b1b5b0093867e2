import { redisScript } from '../../scripting/redis-script.js';

/**
 * Begins a rebuild of a Bloom filter, unless another one runs.
 *
 * The rebuilder is a string: the token of the running rebuild, or `done:` and the token of the last one that finished.
 *
 * KEYS: 1 rebuilt bits, 2 rebuilder. ARGV: 1 token, 2 lease in ms, 3 number of bits.
 * Returns 1, or 0 when another rebuild runs.
 */
export const BEGIN_REBUILD = redisScript(`
local rebuilder = redis.call('GET', KEYS[2])
if rebuilder == ARGV[1] then return 1 end
if rebuilder and string.sub(rebuilder, 1, 5) ~= 'done:' then return 0 end
redis.call('UNLINK', KEYS[1])
redis.call('SETBIT', KEYS[1], ARGV[3] - 1, 0)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1
`);
