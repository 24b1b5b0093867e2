import { redisScript } from '../scripting/redis-script.js';

/**
 * Notes that processes of a protocol version use these keys, and returns the other versions in use.
 *
 * The versions are one string: `<version>=<earliest version it works with>@<until>`, separated by spaces. `until` is
 * when (ms of Redis TIME) the note of a version ends, unless one of its processes writes it again.
 *
 * KEYS: 1 the versions. ARGV: 1 version, 2 earliest version it works with, 3 how long the note lasts in ms.
 * Returns {version, earliest version it works with, ...} of the others.
 */
export const NOTE_VERSION = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = now + ARGV[3]
local notes, others = {string.format('%s=%s@%.0f', ARGV[1], ARGV[2], last)}, {}
local known = redis.call('GET', KEYS[1]) or ''
for version, earliest, ends in string.gmatch(known, '(%d+)=(%d+)@(%d+)') do
  if version ~= ARGV[1] and tonumber(ends) > now then
    notes[#notes + 1] = version .. '=' .. earliest .. '@' .. ends
    last = math.max(last, tonumber(ends))
    others[#others + 1] = version
    others[#others + 1] = earliest
  end
end
redis.call('SET', KEYS[1], table.concat(notes, ' '), 'PX', string.format('%.0f', last - now))
return others
`);
