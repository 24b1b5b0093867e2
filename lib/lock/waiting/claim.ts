import type { QueueAnswer } from '../../contracts/lock-backend.js';

/**
 * The lease of a waiter whose turn comes (ms), until it is renewed: what a dead next-in-line costs the others, and how
 * long a healthy process may take to notice.
 */
const LONGEST_CLAIM = 1_000;
const SHORTEST_PERIOD = 25;
const LONGEST_PERIOD = 1_000;
/** A waiter that no message reaches finds out by itself (ms). */
const UNREACHED_PERIOD = 50;

type Busy = Extract<QueueAnswer, { status: 'busy' }>;

/** The lease (ms) of a waiter whose turn comes. */
export function claimOf(ttl: number): number {
  return Math.min(LONGEST_CLAIM, ttl);
}

/** The trusted lease (ms) that a holder must find when it begins. */
export function leastToEnter(ttl: number): number {
  return claimOf(ttl) / 4;
}

/**
 * When (ms from now) a waiter says again that it lives: so often that a lost message costs it half of its claim only,
 * and less often where its turn is far away. The first one says so when the lease of the owner ends.
 */
export function nextBeat(
  ttl: number,
  { first, far, unreached, remaining }: Pick<Busy, 'first' | 'far' | 'unreached' | 'remaining'>,
): number {
  const near = Math.max(claimOf(ttl) / 2, SHORTEST_PERIOD);
  if (unreached) return Math.min(near, UNREACHED_PERIOD);
  const period = far ? Math.min(2 * near, LONGEST_PERIOD) : near;
  return first && remaining < period ? remaining + 1 : period;
}
