import { ACQUIRE } from './acquire.lua.js';
import { BEAT } from './beat.lua.js';
import { ENQUEUE } from './enqueue.lua.js';
import { FORCE_RELEASE } from './force-release.lua.js';
import { MINT } from './mint.lua.js';
import { FENCE_TTL, withFenceTtl, type RedisScript } from './redis-script.js';
import { RELEASE } from './release.lua.js';
import { REQUEUE } from './requeue.lua.js';

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
