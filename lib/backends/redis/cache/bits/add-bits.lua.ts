import { redisScript } from '../../scripting/redis-script.js';

/**
 * Sets bits in the Bloom filter, if it exists, and in the copy that a running rebuild fills.
 *
 * KEYS: 1 bits, 2 rebuilt bits. ARGV: 1 time to live in ms, then the positions.
 */
export const ADD_BITS = redisScript(`
for _, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then
    for i = 2, #ARGV do redis.call('SETBIT', key, ARGV[i], 1) end
  end
end
if redis.call('PTTL', KEYS[1]) < ARGV[1] / 2 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return 1
`);
