import { redisScript } from '../../scripting/redis-script.js';

/** How long (ms) the token of a finished rebuild is kept, so that a repeated request gets the same answer. */
const MEMORY = 60_000;

/**
 * Replaces the bits of the filter with those of the rebuild.
 *
 * KEYS: 1 bits, 2 rebuilt bits, 3 rebuilder. ARGV: 1 token, 2 time to live in ms.
 * Returns 1, also when the request is repeated, or 0 when the rebuild has lost its lease.
 */
export const FINISH_REBUILD = redisScript(`
local rebuilder, done = redis.call('GET', KEYS[3]), 'done:' .. ARGV[1]
if rebuilder == done then return 1 end
if rebuilder ~= ARGV[1] or redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
redis.call('UNLINK', KEYS[1])
redis.call('RENAME', KEYS[2], KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[3], done, 'PX', ${MEMORY})
return 1
`);
