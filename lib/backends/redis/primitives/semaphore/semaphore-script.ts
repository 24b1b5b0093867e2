import { batchOf, redisScript, type RedisScript } from '../../scripting/redis-script.js';
import { SEMAPHORE_FUNCTIONS } from './semaphore-functions.lua.js';

/** The functions that a text names, with those that these name, in the order in which they are defined. */
function functionsIn(text: string): string {
  const needed = new Set<string>();
  const look = (part: string) => {
    for (const name of part.match(/\w+(?=\()/g) ?? []) {
      const body = SEMAPHORE_FUNCTIONS[name];
      if (body === undefined || needed.has(name)) continue;
      needed.add(name);
      look(body);
    }
  };
  look(text);
  return Object.keys(SEMAPHORE_FUNCTIONS)
    .filter((name) => needed.has(name))
    .map((name) => `local ${name} = ${SEMAPHORE_FUNCTIONS[name]}`)
    .join('\n');
}

/**
 * A script over semaphores: `each` is the text of a Lua function of `s`, which has `SEMAPHORE_FUNCTIONS`, and of the
 * index of its first argument.
 *
 * The keys of a semaphore:
 * - permits: a sorted set with one member for each permit that is held, whose score is the end of its lease (ms of
 *   Redis TIME). Its size is the only count, once leases that have ended are removed. A ticket with several permits has
 *   the members `ticket`, `ticket/2`, ...
 * - queue: a sorted set of the waiting tickets in order of arrival.
 * - processes: a sorted set of the processes with waiters. The score is twice the time (ms) of the last heartbeat, and
 *   1 more if a message has missed the process since.
 * - state: a hash with `limit`, the number of permits of the last call, `token`, which no fencing token exceeds so far,
 *   and `until`, the time (ms) until which the permits and the state are kept at least.
 *
 * A ticket is `process:number:count`, so that it says whom to tell and how many permits it wants. The first argument
 * of a script says how to publish (see `publishArgument`).
 *
 * The idea of one sorted set of deadlines: the counting semaphore of "Redis in Action" (6.3), which Medallion's
 * DistributedLock and redis-semaphore use too; here on the clock of Redis and with a queue.
 */
export function semaphoreScript(each: string, args: number): RedisScript {
  return redisScript(`
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local now_text = string.format('%.0f', now)
local calls = (#ARGV - 1) / ${args + 1}
${functionsIn(each)}
local call = function(s, arg)
${each}
end
local known = {}
local each = function(key, arg)
  local name = KEYS[key]
  local s = known[name] or {
    permits = name, queue = KEYS[key + 1], processes = KEYS[key + 2], state = KEYS[key + 3],
    -- Room for what will be read.
    limit = false, token = false, written = false, kept = false, taken = false, purged = false, first = false, last = false, lease = false, ends = false,
    beats = {},
  }
  -- What a call that fails had read or written may not be true.
  known[name] = nil
  local answer = call(s, arg)
  known[name] = s
  return answer
end
${batchOf('each', { keys: 'numbered', args, shared: 1 })}
`);
}
