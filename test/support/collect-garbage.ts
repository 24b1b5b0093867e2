import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Collects what nothing refers to, and lets finalizers run. */
export async function collectGarbage(): Promise<void> {
  // What the running job has looked at through a WeakRef is kept until it ends.
  await sleep(1);
  collect();
  await sleep(1);
}
