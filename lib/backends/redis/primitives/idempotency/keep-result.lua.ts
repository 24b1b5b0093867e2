import { redisScript } from '../../scripting/redis-script.js';

/**
 * Keeps the result of an attempt, unless a result is kept already or a newer attempt has begun: a holder that was
 * frozen beyond its lease cannot overwrite what a later one has done.
 *
 * KEYS: record, as in BEGIN.
 * ARGV: token, time to live in ms, 1 to keep it also if there is no record (else empty), the new record.
 * Returns 1 if the result of this attempt is kept, else 0. A repeated request gets the same answer, because the record
 * has its token.
 */
export const KEEP_RESULT = redisScript(`
local record = redis.call('GET', KEYS[1])
if record then
  local state, token = string.match(record, '^(%a) (%d+) ')
  if state ~= 'r' then return token == ARGV[1] and 1 or 0 end
  if tonumber(token) > tonumber(ARGV[1]) then return 0 end
elseif ARGV[3] == '' then return 0 end
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[2])
return 1
`);
