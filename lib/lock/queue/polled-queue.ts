import type { LockBackend, NameRequest, Pending } from '../../contracts/lock-backend.js';
import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  QueueAnswer,
  RequeueRequest,
} from '../../contracts/lock-queue.js';
import { EndedTurns } from './ended-turns.js';

/**
 * The queue of a backend whose store keeps none: the callers of one process wait in order, and one ticket tries again
 * and again for all of them. Which other processes wait is unknown, so that every turn ends as if others waited.
 */
export class PolledQueue implements LockQueue {
  private readonly turns = new EndedTurns();

  constructor(private readonly backend: LockBackend) {}

  pace({ prefix, name }: NameRequest): number {
    return this.turns.pace(prefix, name);
  }

  giveWay({ prefix, name }: NameRequest): void {
    this.turns.ended(prefix, name);
  }

  /** There are no messages. */
  async listen(): Promise<void> {}

  enqueue({ prefix, name, ticket, ttl, claim, patient }: EnqueueRequest): Pending<QueueAnswer> {
    const waits = claim !== undefined;
    if (waits && patient && this.turns.givesWay(prefix, name)) {
      return Promise.resolve<QueueAnswer>({ status: 'busy', owner: '', remaining: Infinity });
    }
    return this.backend.acquire({ prefix, names: [name], ticket, ttl, waits });
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
