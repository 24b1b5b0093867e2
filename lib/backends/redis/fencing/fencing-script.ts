import { redisScript, type RedisScript } from '../scripting/redis-script.js';

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
