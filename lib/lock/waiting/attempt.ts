import { currentInstant, type Instant } from '../lease/lease-clock.js';

/** One ticket that asks for the name. */
export interface Attempt {
  readonly ticket: string;
  /** Whether the ticket may stand in the queue at the backend. */
  readonly queues: boolean;
  /** The lease (ms) that it may be granted. */
  readonly lease: number;
  /** Whether it is known that the name is taken. */
  answered: boolean;
  /** When the last request was sent that was answered "it waits": a message of a grant cannot be older. */
  base: Instant;
  /** A message with a token below this tells of an earlier grant. */
  unissued: number;
  heartbeat: NodeJS.Timeout | undefined;
}

/** It asks from now on. */
export function newAttempt(ticket: string, queues: boolean, lease: number): Attempt {
  return { ticket, queues, lease, answered: false, base: currentInstant(), unissued: 0, heartbeat: undefined };
}
