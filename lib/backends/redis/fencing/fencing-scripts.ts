import { ACQUIRE } from '../locks/scripts/acquire.lua.js';
import { BEAT } from '../locks/scripts/beat.lua.js';
import { ENQUEUE } from '../locks/scripts/enqueue.lua.js';
import { FORCE_RELEASE } from '../locks/scripts/force-release.lua.js';
import { MINT } from '../locks/scripts/mint.lua.js';
import { FENCE_TTL, withFenceTtl, type RedisScript } from '../scripting/redis-script.js';
import { RELEASE } from '../locks/scripts/release.lua.js';
import { REQUEUE } from '../locks/scripts/requeue.lua.js';

/** The scripts that may issue fencing tokens. */
export interface FencingScripts {
  readonly acquire: RedisScript;
  readonly enqueue: RedisScript;
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
    acquire: of(ACQUIRE),
    enqueue: of(ENQUEUE),
    beat: of(BEAT),
    requeue: of(REQUEUE),
    release: of(RELEASE),
    forceRelease: of(FORCE_RELEASE),
    mint: of(MINT),
  };
}
