import { ACQUIRE_ALL } from './scripts/acquire-all.lua.js';
import { DOWNGRADE } from './readers/downgrade.lua.js';
import { READ_ALL } from './readers/read-all.lua.js';
import { READ_OR_ENQUEUE } from './readers/read-or-enqueue.lua.js';
import { BEAT } from './scripts/beat.lua.js';
import { ACQUIRE_OR_ENQUEUE } from './scripts/acquire-or-enqueue.lua.js';
import { FORCE_RELEASE } from './scripts/force-release.lua.js';
import { MINT, MINT_ALONE } from './scripts/mint.lua.js';
import { oneKeySteps } from './one-key-steps.js';
import { FENCE_TTL, withFenceTtl } from '../fencing/fencing-script.js';
import type { RedisScript } from '../scripting/redis-script.js';
import { RELEASE } from './scripts/release.lua.js';
import { REQUEUE } from './scripts/requeue.lua.js';

/** The scripts that may issue fencing tokens. */
export interface FencingScripts {
  readonly acquireAll: RedisScript;
  readonly acquireOrEnqueue: RedisScript;
  readonly beat: RedisScript;
  readonly requeue: RedisScript;
  readonly release: RedisScript;
  readonly forceRelease: RedisScript;
  readonly mint: RedisScript;
  readonly readAll: RedisScript;
  readonly readOrEnqueue: RedisScript;
  readonly downgrade: RedisScript;
}

/** The scripts for counters that are kept for `fenceTtl` ms after the last grant. */
export function fencingScripts(fenceTtl: number = FENCE_TTL): FencingScripts {
  const of = (script: RedisScript) => (fenceTtl === FENCE_TTL ? script : withFenceTtl(script, fenceTtl));
  const steps = oneKeySteps(of(MINT_ALONE));
  return {
    acquireAll: of(ACQUIRE_ALL),
    acquireOrEnqueue: { ...of(ACQUIRE_OR_ENQUEUE), stepwise: steps.enqueue },
    beat: { ...of(BEAT), stepwise: steps.beat },
    requeue: of(REQUEUE),
    release: { ...of(RELEASE), stepwise: steps.release },
    forceRelease: of(FORCE_RELEASE),
    mint: { ...of(MINT), stepwise: steps.mint },
    readAll: of(READ_ALL),
    // While a slot is moved, a reader takes a free lock alone.
    readOrEnqueue: { ...of(READ_OR_ENQUEUE), stepwise: steps.enqueue },
    downgrade: of(DOWNGRADE),
  };
}
