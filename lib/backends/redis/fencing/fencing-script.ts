import { redisScript, type RedisScript } from '../scripting/redis-script.js';

/**
 * How long (ms) the counter of the fencing tokens of a name is kept after the last grant. Tokens start from the time of
 * Redis, so they rise even when the counter is gone. The counter bridges two gaps only: tokens may run ahead of the
 * clock (by a millisecond), and a name may move to a server whose clock is behind. Ten minutes is twice the clock skew
 * that Kerberos tolerates.
 */
export const FENCE_TTL = 10 * 60 * 1_000;

/** A script that issues fencing tokens. */
export function fencingScript(body: string): RedisScript {
  return redisScript(withTtl(FENCE_TTL) + body);
}

/** The same script with another expiry of the counter. */
export function withFenceTtl({ lua }: RedisScript, fenceTtl: number): RedisScript {
  const usual = withTtl(FENCE_TTL);
  return redisScript(withTtl(fenceTtl) + lua.slice(lua.indexOf(usual) + usual.length));
}

function withTtl(fenceTtl: number): string {
  return `local fence_ttl = '${fenceTtl}'\n`;
}
