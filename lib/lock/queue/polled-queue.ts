import type { LockBackend, NameRequest, Pending } from '../../contracts/lock-backend.js';
import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  QueueAnswer,
  RequeueRequest,
} from '../../contracts/lock-queue.js';
import { ContendedNames } from './contended-names.js';

/**
 * The queue of a backend whose store keeps none: the callers of one process wait in order, and one ticket tries again
 * and again for all of them. Which other processes wait is unknown, so that every turn ends as if others waited.
 */
export class PolledQueue implements LockQueue {
  private readonly contended = new ContendedNames();

  constructor(private readonly backend: LockBackend) {}

  pace({ prefix, name }: NameRequest): number {
    return this.contended.pace(prefix, name);
  }

  giveWay({ prefix, name }: NameRequest): void {
    this.contended.turnEnded(prefix, name);
  }

  /** There are no messages. */
  async listen(): Promise<void> {}

  async enqueue({ prefix, name, ticket, ttl, claim, patient }: EnqueueRequest): Promise<QueueAnswer> {
    const waits = claim !== undefined;
    if (waits && patient && this.contended.givesWay(prefix, name))
      return { status: 'busy', owner: '', remaining: Infinity };
    return this.ask(prefix, name, this.backend.acquire({ prefix, names: [name], ticket, ttl, waits }));
  }

  /** The ticket of a waiter takes the name if it is free now. */
  beat({ prefix, name, ticket, ttl }: BeatRequest): Promise<QueueAnswer> {
    return this.ask(prefix, name, this.backend.acquire({ prefix, names: [name], ticket, ttl, waits: true }));
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

  /** Where the store does not know whether others wait, those that had the name of late may want it again. */
  private async ask(prefix: string | undefined, name: string, asked: Pending<QueueAnswer>): Promise<QueueAnswer> {
    const answer = await asked;
    if (answer.status === 'busy') this.contended.taken(prefix, name);
    else if (answer.waiting === undefined && this.contended.has(prefix, name)) return { ...answer, waiting: 1 };
    return answer;
  }
}
