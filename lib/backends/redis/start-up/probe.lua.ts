import { redisScript } from '../scripting/redis-script.js';

/**
 * Tries all commands, also after one has failed.
 *
 * KEYS: the keys that the commands refer to by number. ARGV: 1 the commands as JSON, 2 a channel if there is one.
 * Returns the name and the error of each that failed, one after the other.
 */
export const PROBE = redisScript(`
local failed = {}
local try = function(command)
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then
    failed[#failed + 1] = command[1]
    failed[#failed + 1] = reply.err
  end
end
for _, probe in ipairs(cjson.decode(ARGV[1])) do
  local command = {}
  for place, part in ipairs(probe) do command[place] = type(part) == 'number' and KEYS[part] or part end
  try(command)
end
if ARGV[2] then try({'PUBLISH', ARGV[2], ''}) end
return failed
`);
