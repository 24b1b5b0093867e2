import { lockOption } from '../../../options/option-checks.js';

/** @throws LockConfigError */
export function fenceTtlOf(fenceTtl: unknown): number {
  return lockOption.timerMilliseconds('fenceTtl', fenceTtl, 1_000);
}
