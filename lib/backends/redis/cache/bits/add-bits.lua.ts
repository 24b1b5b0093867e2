import { redisScript } from '../../scripting/redis-script.js';

/**
 * Sets bits, where there are any, and in those that are to take their place.
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
