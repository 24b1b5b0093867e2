/**
 * What a store knows of the values that it keeps: the first bytes of those that have an envelope are a version, flags,
 * and when they stop being fresh, in ms of the wall clock, base 36.
 */
export const HEADER = {
  version: 1,
  /** What the byte of flags begins at. */
  flags: 64,
  /** Flag: it is kept for longer than it is fresh. */
  keptStale: 8,
  /** Flag: it was expired softly, and is fresh no more whatever the clock says. */
  expired: 32,
} as const;

/** More than that the beginning does not take. */
const LENGTH = 16;

/** The value as one that is stale since `now`, if it was not before; `undefined` for what has no envelope. */
export function expiredSoftly(data: Buffer, now: number): Buffer | undefined {
  const flags = (data[1] ?? 0) - HEADER.flags;
  const time = /^[0-9a-z]+/.exec(data.toString('latin1', 2, LENGTH))?.[0];
  if (data[0] !== HEADER.version || time === undefined) return undefined;
  if (flags & HEADER.expired) return data;
  const kept = Math.min(parseInt(time, 36), now).toString(36);
  const first = Buffer.from([HEADER.version, HEADER.flags + (flags | HEADER.keptStale | HEADER.expired)]);
  return Buffer.concat([first, Buffer.from(kept), data.subarray(2 + time.length)]);
}

/** The same in Lua: `expire_softly(key, now)`, `now` in base 36, answers whether the key had an envelope. */
export const EXPIRE_SOFTLY = `
local function expire_softly(key, now)
  local head = redis.call('GETRANGE', key, 0, ${LENGTH - 1})
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
