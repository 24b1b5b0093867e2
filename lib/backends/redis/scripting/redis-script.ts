import { createHash } from 'node:crypto';

/** A Lua script with the digest that EVALSHA calls it by. */
export interface RedisScript {
  readonly lua: string;
  readonly sha1: string;
}

export function redisScript(lua: string): RedisScript {
  return { lua, sha1: createHash('sha1').update(lua).digest('hex') };
}

/** How keys and arguments of many calls lie in KEYS and ARGV. */
interface BatchLayout {
  /** Keys of one call. */
  readonly keys: number;
  /** Arguments of one call. */
  readonly args: number;
  /** Arguments before those of the first call, which all calls have in common. */
  readonly shared: 0 | 1;
}

/**
 * The end of a script that takes many calls: calls the Lua function `each(first key, first argument)` for each of them
 * and returns the list of what it returned. An error is the answer to its own call only. A single call is answered
 * without a list around it.
 */
export function batchOf(each: string, { keys, args, shared }: BatchLayout): string {
  return `
local answers = {}
for i = 0, #KEYS / ${keys} - 1 do
  local fine, answer = pcall(${each}, ${keys} * i + 1, ${args} * i + ${1 + shared})
  if not fine and type(answer) ~= 'table' then answer = {err = answer} end
  if #KEYS == ${keys} then return answer end
  answers[i + 1] = answer
end
return answers
`;
}
