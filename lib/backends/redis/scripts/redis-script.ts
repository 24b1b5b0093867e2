import { createHash } from 'node:crypto';

/** A Lua script with the digest that EVALSHA calls it by. */
export interface RedisScript {
  readonly lua: string;
  readonly sha1: string;
}

export function redisScript(lua: string): RedisScript {
  return { lua, sha1: createHash('sha1').update(lua).digest('hex') };
}
