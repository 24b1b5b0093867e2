import type { LockBackend, Pending } from '../../contracts/lock-backend.js';
import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  QueueAnswer,
  RequeueRequest,
} from '../../contracts/lock-queue.js';

/** Between two tries (ms): a random time in this range, so that the processes do not try in step. */
const SHORTEST_PACE = 5;
const LONGEST_PACE = 25;

/**
 * The queue of a backend whose store keeps none: the callers of one process wait in order, and one ticket tries again
 * and again for all of them. Which other processes wait is unknown, so that every turn ends as if others waited.
 */
export class PolledQueue implements LockQueue {
  constructor(private readonly backend: LockBackend) {}

  pace(): number {
    return SHORTEST_PACE + Math.random() * (LONGEST_PACE - SHORTEST_PACE);
  }

  /** There are no messages. */
  async listen(): Promise<void> {}

  enqueue({ prefix, name, ticket, ttl, claim }: EnqueueRequest): Pending<QueueAnswer> {
    return this.backend.acquire({ prefix, names: [name], ticket, ttl, waits: claim !== undefined });
  }

  /** The ticket of a waiter takes the name if it is free now. */
  beat({ prefix, name, ticket, ttl }: BeatRequest): Pending<QueueAnswer> {
    return this.backend.acquire({ prefix, names: [name], ticket, ttl, waits: true });
  }

  /** Releases the name; the other ticket tries with its first heartbeat, so that other processes come before it. */
  async requeue({
    prefix,
    name,
    ticket,
    again,
  }: RequeueRequest): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const { status, resent } = await this.backend.release({ prefix, names: [name], ticket, again });
    if (status !== 'released') return { status: 'not-owner', resent };
    return { status: 'busy', owner: '', remaining: Infinity };
  }
}
