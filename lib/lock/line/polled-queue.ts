import type { LockBackend } from '../../contracts/lock-backend.js';
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

  constructor(private readonly backend: LockBackend) {}

  pace({ prefix, name }: NameRequest): number {
    return this.turns.pace(prefix, name);
  }

  giveWay({ prefix, name }: NameRequest): void {
    this.turns.ended(prefix, name);
  }

  /** There are no messages. */
  async listen(): Promise<void> {}

  enqueue({ prefix, name, ticket, mode, ttl, claim, patient }: EnqueueRequest): Pending<QueueAnswer> {
    const waits = claim !== undefined;
    if (waits && patient && this.turns.givesWay(prefix, name)) {
      return Promise.resolve<QueueAnswer>({ status: 'busy', owner: '', remaining: Infinity });
    }
    return this.backend.acquire({ prefix, name, names: [name], ticket, mode, ttl, waits });
  }

  /** The ticket of a waiter takes the name if it is free now. */
  beat({ prefix, name, ticket, mode, ttl }: BeatRequest): Pending<QueueAnswer> {
    return this.backend.acquire({ prefix, name, names: [name], ticket, mode, ttl, waits: true });
  }

  /** Releases the name; the other ticket tries with its first heartbeat, so that other processes come before it. */
  async requeue({
    prefix,
    name,
    ticket,
    again,
  }: RequeueRequest): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const { status, resent } = await this.backend.release({ prefix, name, names: [name], ticket, again });
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

  ended(prefix: string | undefined, name: string): void {
    const [now, key] = [performance.now(), keyOf(prefix, name)];
    this.turns.delete(key);
    this.turns.set(key, { at: now, waysUntil: now + between(AFTER_TURN) });
    for (const [old, { at }] of this.turns) {
      if (now - at < LATELY) break;
      this.turns.delete(old);
    }
  }

  /** Whether those that wait in other processes come before a caller of this one. */
  givesWay(prefix: string | undefined, name: string): boolean {
    return this.turns.size > 0 && (this.turns.get(keyOf(prefix, name))?.waysUntil ?? 0) > performance.now();
  }

  /** Milliseconds until the next try. */
  pace(prefix: string | undefined, name: string): number {
    const now = performance.now();
    const turn = this.turns.get(keyOf(prefix, name));
    if (!turn || now - turn.at > LATELY) return between(USUAL);
    if (turn.waysUntil > now) return turn.waysUntil - now;
    return between(now - turn.at < OTHERS_FIRST ? AT_FIRST : AT_LAST);
  }
}

function keyOf(prefix: string | undefined, name: string): string {
  return prefix === undefined ? name : `${prefix}:${name}`;
}

function between([least, most]: readonly [number, number]): number {
  return least + Math.random() * (most - least);
}
