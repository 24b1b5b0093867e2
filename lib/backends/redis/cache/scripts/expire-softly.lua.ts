import { HEADER } from '../../../../contracts/value-header.js';

/**
 * The Lua function `expire_softly(key, now)`: marks the value as stale since `now` (ms of the wall clock, base 36), as
 * `expiredSoftly` of the contract does. Returns whether the value has an envelope.
 */
export const EXPIRE_SOFTLY = `
local function expire_softly(key, now)
  local head = redis.call('GETRANGE', key, 0, ${HEADER.length - 1})
  local time = string.match(head, '^..(%w+)')
  if not time or string.byte(head) ~= ${HEADER.version} then return false end
  local flags = string.byte(head, 2)
  if flags % ${2 * HEADER.expired} >= ${HEADER.expired} then return true end
  flags = flags + ${HEADER.expired}
  if flags % ${2 * HEADER.keptStale} < ${HEADER.keptStale} then flags = flags + ${HEADER.keptStale} end
  local kept = tonumber(time, 36) < tonumber(now, 36) and time or now
  local rest = string.sub(redis.call('GET', key), 3 + #time)
  redis.call('SET', key, string.char(${HEADER.version}, flags) .. kept .. rest, 'KEEPTTL')
  return true
end
`;
