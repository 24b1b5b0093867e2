import { redisScript } from '../../scripting/redis-script.js';

/**
 * Notes that an attempt begins, unless a result is kept, the attempt before it had another fingerprint, or a newer one
 * has begun. The lock of the key is held meanwhile; the token is the one of this hold.
 *
 * The record is a string: state (`r` while running), token, attempt and fingerprint, with a space between them, a line
 * feed, and the payload.
 *
 * KEYS: record.
 * ARGV: token, fingerprint (or empty), time to live in ms.
 * Returns the record that is now there. A repeated request gets the same answer, because the record has its token.
 */
export const BEGIN = redisScript(`
local record = redis.call('GET', KEYS[1])
local attempt, fingerprint = 1, ARGV[2]
if record then
  local state, token, begun, known = string.match(record, '^(%a) (%d+) (%d+) (%x*)\\n')
  if state ~= 'r' or tonumber(token) >= tonumber(ARGV[1]) then return record end
  if known ~= '' and fingerprint ~= '' and known ~= fingerprint then return record end
  if fingerprint == '' then fingerprint = known end
  attempt = begun + 1
end
record = string.format('r %s %d %s\\n', ARGV[1], attempt, fingerprint)
redis.call('SET', KEYS[1], record, 'PX', ARGV[3])
return record
`);
