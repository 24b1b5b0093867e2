// The scripts of the library that the comparison calls.

import { TAKE_ALONE } from '../../../lib/backends/redis/locks/acquire.lua.js';
import { fencingScripts } from '../../../lib/backends/redis/locks/fencing-scripts.js';
import { KEEP, RELEASE_ALONE, RENEW } from '../../../lib/backends/redis/locks/release.lua.js';

export const LOCK_SCRIPTS = {
  ...fencingScripts(),
  renew: RENEW,
  keep: KEEP,
  releaseAlone: RELEASE_ALONE,
  takeAlone: TAKE_ALONE,
};
