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
 * How long (ms) the counter of the fencing tokens of a name stays after the last grant. Tokens begin at the time of
 * Redis, so that they rise also without it: it need only outlive what they may run ahead of the clock, which is a
 * millisecond, and what the clock of another server may be behind to which a name is moved. Ten minutes is twice what
 * Kerberos puts up with.
 */
export const FENCE_TTL = 10 * 60 * 1_000;

/** A script that issues fencing tokens. */
export function fencingScript(body: string): RedisScript {
  return redisScript(withTtl(FENCE_TTL) + body);
}

/** The same script with another `FENCE_TTL`. */
export function withFenceTtl({ lua }: RedisScript, fenceTtl: number): RedisScript {
  return redisScript(withTtl(fenceTtl) + lua.slice(withTtl(FENCE_TTL).length));
}

function withTtl(fenceTtl: number): string {
  return `local fence_ttl = '${fenceTtl}'\n`;
}

/**
 * Calls the Lua function `each(first key, first argument)` for every call of a batch, of so many keys and arguments,
 * and returns what each answered. The first argument is common to all: whether PUBLISH counts (1 or 0), and after it
 * what channels begin with. An error is the answer to its own call only. A call that is alone is answered without a
 * list around it.
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
