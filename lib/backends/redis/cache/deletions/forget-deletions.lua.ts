import { redisScript } from '../../scripting/redis-script.js';

/**
 * Removes claimed deletions, except those that were scheduled again since (see SCHEDULE_DELETIONS for the data).
 *
 * KEYS: 1 deletions. ARGV: the names.
 */
export const FORGET_DELETIONS = redisScript(`
for _, name in ipairs(ARGV) do
  if (redis.call('ZSCORE', KEYS[1], name) or 0) % 1 ~= 0 then redis.call('ZREM', KEYS[1], name) end
end
return 1
`);
