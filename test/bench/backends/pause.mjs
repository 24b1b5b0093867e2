import { setTimeout as sleep } from 'node:timers/promises';
import { RETRY } from '../peers/patience.mjs';

/** The pause between two tries of a peer that leaves it to its user. */
export function pause() {
  return sleep(RETRY.delay + (Math.random() * 2 - 1) * RETRY.jitter);
}
