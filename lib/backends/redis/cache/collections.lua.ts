// The scripts of the sets, of the expiring sets, and of the bits under Bloom filters.

import { redisScript } from '../connection/redis-script.js';

/**
 * Adds members to a set and restarts its time to live.
 *
 * KEYS: 1 set. ARGV: 1 time to live in ms (empty: none), then the members.
 * Returns the number of new members.
 */
export const ADD_TO_SET = redisScript(`
local added = 0
for i = 2, #ARGV do added = added + redis.call('SADD', KEYS[1], ARGV[i]) end
if ARGV[1] == '' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return added
`);

/**
 * KEYS: 1 set. ARGV: the members.
 * Returns the number of members removed.
 */
export const REMOVE_FROM_SET = redisScript(`
local removed = 0
for i = 1, #ARGV do removed = removed + redis.call('SREM', KEYS[1], ARGV[i]) end
return removed
`);

/** KEYS: 1 set. ARGV: 1 member. Returns 1 when the set has it, else 0. */
export const IS_IN_SET = redisScript("return redis.call('SISMEMBER', KEYS[1], ARGV[1])");

/** KEYS: 1 set. Returns the members. */
export const LIST_SET = redisScript("return redis.call('SMEMBERS', KEYS[1])");

/**
 * The beginning of each script on an expiring set: a sorted set whose scores are the times (ms of Redis TIME) until
 * which the members live.
 */
const DROP_EXPIRED = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
`;

/** Expires the key with its last member. */
const EXPIRE_WITH_LAST = `
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if last then redis.call('PEXPIREAT', KEYS[1], last) end
`;

/**
 * Adds members, or keeps existing ones, for a time from now.
 *
 * KEYS: 1 set. ARGV: 1 time to live in ms, then the members.
 * Returns the number of new members.
 */
export const ADD_TO_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
local added = 0
for i = 2, #ARGV do added = added + redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[i]) end
${EXPIRE_WITH_LAST}
return added
`);

/**
 * KEYS: 1 set. ARGV: the members.
 * Returns the number of members removed.
 */
export const REMOVE_FROM_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
local removed = 0
for i = 1, #ARGV do removed = removed + redis.call('ZREM', KEYS[1], ARGV[i]) end
${EXPIRE_WITH_LAST}
return removed
`);

/**
 * KEYS: 1 set. ARGV: 1 member.
 * Returns 1 when the set has the member, else 0.
 */
export const IS_IN_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
return redis.call('ZSCORE', KEYS[1], ARGV[1]) and 1 or 0
`);

/**
 * KEYS: 1 set.
 * Returns the members, ordered by when they expire.
 */
export const LIST_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
return redis.call('ZRANGE', KEYS[1], 0, -1)
`);

/**
 * KEYS: 1 set.
 * Returns the number of members.
 */
export const COUNT_EXPIRING_SET = redisScript(`
${DROP_EXPIRED}
return redis.call('ZCARD', KEYS[1])
`);

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

/**
 * Checks for each of several lists of positions whether all its bits are set.
 *
 * KEYS: 1 bits. ARGV: 1 time to live in ms, 2 length of each list, then the positions of all lists.
 * Returns 1 or 0 for each list, or nil when the filter does not exist.
 */
export const HAS_BITS = redisScript(`
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return false end
if left < ARGV[1] / 2 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
local answers, length = {}, tonumber(ARGV[2])
for first = 3, #ARGV, length do
  local all = 1
  for i = first, first + length - 1 do
    if redis.call('GETBIT', KEYS[1], ARGV[i]) == 0 then
      all = 0
      break
    end
  end
  answers[#answers + 1] = all
end
return answers
`);

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
redis.call('SET', KEYS[1], '')
redis.call('SETBIT', KEYS[1], ARGV[3] - 1, 0)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1
`);

/**
 * Sets bits in the copy that a rebuild fills, and renews the lease of the rebuild.
 *
 * KEYS: 1 rebuilt bits, 2 rebuilder. ARGV: 1 token, 2 lease in ms, then the positions.
 * Returns 1, or 0 when the rebuild has lost its lease.
 */
export const ADD_TO_REBUILD = redisScript(`
if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
for i = 3, #ARGV do redis.call('SETBIT', KEYS[1], ARGV[i], 1) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
`);

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
redis.call('RENAME', KEYS[2], KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[3], done, 'PX', ${MEMORY})
return 1
`);

/**
 * Abandons the rebuild, if it is still that of the token.
 *
 * KEYS: 1 rebuilt bits, 2 rebuilder. ARGV: 1 token.
 */
export const DROP_REBUILD = redisScript(`
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('UNLINK', KEYS[1], KEYS[2]) end
return 1
`);
