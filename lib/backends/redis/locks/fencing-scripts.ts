import { ACQUIRE_ALL } from './scripts/acquire-all.lua.js';
import { BEAT } from './scripts/beat.lua.js';
import { ACQUIRE_OR_ENQUEUE } from './scripts/acquire-or-enqueue.lua.js';
import { FORCE_RELEASE } from './scripts/force-release.lua.js';
import { MINT } from './scripts/mint.lua.js';
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
}

/** For counters of tokens that stay for `fenceTtl` ms after the last grant. */
export function fencingScripts(fenceTtl: number = FENCE_TTL): FencingScripts {
  const of = (script: RedisScript) => (fenceTtl === FENCE_TTL ? script : withFenceTtl(script, fenceTtl));
  return {
    acquireAll: of(ACQUIRE_ALL),
    acquireOrEnqueue: of(ACQUIRE_OR_ENQUEUE),
    beat: of(BEAT),
    requeue: of(REQUEUE),
    release: of(RELEASE),
    forceRelease: of(FORCE_RELEASE),
    mint: of(MINT),
  };
}
