/** How the value of a lock that readers hold begins. No process has this name, so that nobody takes it for a ticket. */
export const READERS_VALUE = 'readers ';

/**
 * The readers of a lock, as Lua functions; they need `now`, the ms of Redis TIME. All of them are in the value of the
 * lock, so that no other key can be lost, evicted or deleted without them:
 *
 *   readers <token> <ticket>=<until> <ticket>=<until> ...
 *
 * The token is that of a reader which joins now. `until` is when (ms of Redis TIME) the lease of that reader ends. The
 * lock expires with the last of them. Clients that know no readers see a lock that somebody else owns.
 *
 * A rewritten value is deleted first, because a server that is out of memory refuses a SET as the first write of a
 * script, and a reader must be able to renew and to leave.
 */
export const READERS = `
local reads = function(ticket) return string.find(ticket, ':0%d+$') ~= nil end
local shared = function(value)
  return type(value) == 'string' and string.find(value, '^${READERS_VALUE}%d+') ~= nil
end
-- Returns the token, the readers whose lease has not ended, and the place of the ticket among them.
local readers_in = function(value, ticket)
  local readers, place = {}, nil
  for each, ends in string.gmatch(value, ' (%S+)=(%d+)') do
    if tonumber(ends) > now then
      readers[#readers + 1] = {ticket = each, ends = tonumber(ends)}
      if each == ticket then place = #readers end
    end
  end
  return string.match(value, '^${READERS_VALUE}(%d+)'), readers, place
end
local store_readers = function(key, token, readers)
  local last, value = 0, {'${READERS_VALUE}' .. token}
  for i, reader in ipairs(readers) do
    last = math.max(last, reader.ends)
    value[i + 1] = string.format('%s=%.0f', reader.ticket, reader.ends)
  end
  if last > now then redis.call('SET', key, table.concat(value, ' '), 'PX', string.format('%.0f', last - now)) end
end
`;

/** The same for a script that has no other use for the time. */
export const READERS_NOW = `
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
${READERS}
`;
