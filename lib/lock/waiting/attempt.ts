import type { QueueAnswer } from '../../contracts/lock-backend.js';
import type { Instant } from '../lease/lease-clock.js';

/** The longest claim (ms): what a dead process at the head of the queue costs the others. */
export const LONGEST_CLAIM = 1_000;
const SHORTEST_PERIOD = 25;
const LONGEST_PERIOD = 1_000;
/** How often (ms) a waiter asks whose process gets no messages. */
const UNREACHED_PERIOD = 50;

type Busy = Extract<QueueAnswer, { status: 'busy' }>;

/** One ticket that asks for the name, or waits for it. */
export interface Attempt {
  readonly ticket: string;
  /** Whether the ticket may wait in the queue at the backend. */
  readonly queues: boolean;
  /** The longest lease (ms) that the backend may grant it. */
  readonly ttl: number;
  /** Whether the backend has answered that the ticket waits. */
  answered: boolean;
  /** When the last request was sent that the backend answered "it waits": every grant of this ticket is later. */
  base: Instant;
  /** A message with a fencing token below this tells of an earlier grant. */
  unissued: number;
  heartbeat: NodeJS.Timeout | undefined;
}

/** The claim (ms) that a waiter is granted. */
export function claimOf(ttl: number): number {
  return Math.min(LONGEST_CLAIM, ttl);
}

/**
 * Milliseconds until the next heartbeat: half a claim, so that a lost message costs no more; twice that for a waiter
 * far from the head. The first waiter asks as soon as the owner's lease ends.
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
