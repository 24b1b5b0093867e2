import { createHash } from 'node:crypto';

/** A Lua script with the digest that EVALSHA calls it by. */
export interface RedisScript {
  readonly lua: string;
  readonly sha1: string;
}

export function redisScript(lua: string): RedisScript {
  return { lua, sha1: createHash('sha1').update(lua).digest('hex') };
}

/**
 * Calls the Lua function `each(first key, first argument)` for every call of a batch, of so many keys and arguments, and
 * returns what each answered. The first argument is common to all: whether PUBLISH counts
 * (1 or 0), and after it what channels begin with. An error is the answer to its own call only. A call
 * that is alone is answered without a list around it.
 */
export function batchOf(each: string, { keys, args }: { keys: number; args: number }): string {
  return `
local answers = {}
for i = 0, #KEYS / ${keys} - 1 do
  local fine, answer = pcall(${each}, ${keys} * i + 1, ${args} * i + 2)
  if not fine and type(answer) ~= 'table' then answer = {err = answer} end
  if #KEYS == ${keys} then return answer end
  answers[i + 1] = answer
end
return answers
`;
}
