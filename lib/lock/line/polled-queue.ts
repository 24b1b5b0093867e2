import type { LockStore } from '../../contracts/lock-backend.js';
import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  QueueAnswer,
  RequeueRequest,
} from '../../contracts/lock-queue.js';
import type { NameRequest } from '../../contracts/lock-requests.js';
import type { Pending } from '../../contracts/store.js';

/**
 * The queue of a backend whose store keeps none: the callers of one process wait in order, and one ticket tries again
 * and again for all of them. Which other processes wait is unknown, so that every turn ends as if others waited.
 */
export class PolledQueue implements LockQueue {
  private readonly turns = new EndedTurns();

  constructor(private readonly store: LockStore) {}

  pace({ name }: NameRequest): number {
    return this.turns.pace(name);
  }

  giveWay({ name }: NameRequest): void {
    this.turns.ended(name);
  }

  /** There are no messages. */
  async listen(): Promise<void> {}

  enqueue({ name, ticket, mode, ttl, claim, patient }: EnqueueRequest): Pending<QueueAnswer> {
    const waits = claim !== undefined;
    if (waits && patient && this.turns.givesWay(name)) {
      return Promise.resolve<QueueAnswer>({ status: 'busy', owner: '', remaining: Infinity });
    }
    return this.store.acquire({ name, ticket, mode, ttl, waits });
  }

  /** The ticket of a waiter takes the name if it is free now. */
  beat({ name, ticket, mode, ttl }: BeatRequest): Pending<QueueAnswer> {
    return this.store.acquire({ name, ticket, mode, ttl, waits: true });
  }

  /** Releases the name; the other ticket tries with its first heartbeat, so that other processes come before it. */
  async requeue({
    name,
    ticket,
    again,
  }: RequeueRequest): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const { status, resent } = await this.store.release({ name, ticket, again });
    if (status !== 'released') return { status: 'not-owner', resent };
    return { status: 'busy', owner: '', remaining: Infinity };
  }
}

/** Between two tries (ms): a random time in this range, so that the processes do not try in step. */
const USUAL = [5, 25] as const;
/** After its own turn (ms): longer than the others pause between two tries, so that one of them comes first. */
const AFTER_TURN = [30, 50] as const;
/** Until others have had a turn (ms), and then: the process that has waited longest tries most often. */
const OTHERS_FIRST = 120;
const AT_FIRST = [15, 25] as const;
const AT_LAST = [5, 10] as const;
/** How long (ms) a turn is remembered. Of more processes than have turns in this time, all try at the usual pace. */
const LATELY = 500;

interface EndedTurn {
  readonly at: number;
  /** Until then, this process lets the others try. */
  readonly waysUntil: number;
}

/** The turns of this process that others waited for the end of: decides when it tries to get the name again. */
class EndedTurns {
  /** By name; the latest at the end. */
  private readonly turns = new Map<string, EndedTurn>();

  ended(name: string): void {
    const now = performance.now();
    this.turns.delete(name);
    this.turns.set(name, { at: now, waysUntil: now + between(AFTER_TURN) });
    for (const [old, { at }] of this.turns) {
      if (now - at < LATELY) break;
      this.turns.delete(old);
    }
  }

  /** Whether those that wait in other processes come before a caller of this one. */
  givesWay(name: string): boolean {
    return this.turns.size > 0 && (this.turns.get(name)?.waysUntil ?? 0) > performance.now();
  }

  /** Milliseconds until the next try. */
  pace(name: string): number {
    const now = performance.now();
    const turn = this.turns.get(name);
    if (!turn || now - turn.at > LATELY) return between(USUAL);
    if (turn.waysUntil > now) return turn.waysUntil - now;
    return between(now - turn.at < OTHERS_FIRST ? AT_FIRST : AT_LAST);
  }
}

function between([least, most]: readonly [number, number]): number {
  return least + Math.random() * (most - least);
}
