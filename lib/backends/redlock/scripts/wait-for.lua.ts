/** A waiter that has not asked for this time (ms) loses its place before the others. */
export const WAITER_TTL = 150;

/**
 * Lua that notes a waiting ticket at `now` (ms of Redis TIME). The hash `wanted` has for each one when it came, as the
 * earliest time (µs) or token that it proposed, and until when it counts as waiting. So all nodes agree on the order,
 * and a process whose clock was ahead has its place as soon as it has learned the time.
 */
export const WAIT_FOR = `
local wait_for = function(wanted, ticket, proposed, now)
  local entry, since = redis.call('HGET', wanted, ticket), tonumber(proposed)
  if entry then since = math.min(since, tonumber(string.match(entry, '^%d+'))) end
  redis.call('HSET', wanted, ticket, string.format('%.0f:%.0f', since, now + ${WAITER_TTL}))
  redis.call('PEXPIRE', wanted, ${WAITER_TTL})
end`;
