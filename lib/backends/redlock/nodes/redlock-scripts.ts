import { FENCE_TTL, withFenceTtl } from '../../redis/fencing/fencing-script.js';
import type { RedisScript } from '../../redis/scripting/redis-script.js';
import { ACQUIRE } from '../scripts/acquire.lua.js';
import { MINT } from '../scripts/mint.lua.js';

/** The scripts that issue fencing tokens. */
export interface RedlockScripts {
  readonly acquire: RedisScript;
  readonly mint: RedisScript;
}

/** The scripts for counters that are kept for `fenceTtl` ms after the last grant. */
export function redlockScripts(fenceTtl: number): RedlockScripts {
  const of = (script: RedisScript) => (fenceTtl === FENCE_TTL ? script : withFenceTtl(script, fenceTtl));
  return { acquire: of(ACQUIRE), mint: of(MINT) };
}
