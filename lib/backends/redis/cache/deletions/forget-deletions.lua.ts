import { redisScript } from '../../scripting/redis-script.js';

/**
 * Forgets deletions that were claimed and not scheduled anew since: see SCHEDULE_DELETIONS for how they are kept.
 *
 * KEYS: 1 deletions. ARGV: the cache keys.
 */
export const FORGET_DELETIONS = redisScript(`
for _, key in ipairs(ARGV) do
  if (redis.call('ZSCORE', KEYS[1], key) or 0) % 1 ~= 0 then redis.call('ZREM', KEYS[1], key) end
end
return 1
`);
