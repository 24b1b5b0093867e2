import { type LockBackend, redis } from 'nest-redis-lock';
import type { BeatRequest, LockQueue, QueueAnswer } from 'nest-redis-lock/backend';
import { Gate } from './gate.js';
import { replacing, withMembers } from './open-backend.js';

/** Options of a wait that ends long before an unanswered heartbeat is given up. */
export const HEARING = { wait: 20_000, commandTimeout: 60_000 };

type BeatAnswer = QueueAnswer | { status: 'gone' };

/** Counts the heartbeats of those that wait in some applications on Redis, and holds up what they get. */
export class WatchedHeartbeats {
  /** The shortest time between two heartbeats of a waiter (ms), unless a lease ends. */
  static readonly PERIOD = 480;
  /** How many were sent. */
  sent = 0;
  private grants: Gate | undefined;

  /** A backend whose heartbeats are watched. */
  on(url: string): LockBackend {
    return replacing(redis(url), (inner) => {
      const queue = inner.queue as LockQueue;
      return { queue: withMembers(queue, { beat: (request: BeatRequest) => this.beat(queue, request) }) };
    });
  }

  /** Until `heal`, no answer to a heartbeat grants anything: a waiter comes in by the message of its grant, or not. */
  holdGrants(): void {
    this.grants ??= new Gate();
  }

  heal(): void {
    this.grants?.open();
    this.grants = undefined;
  }

  private async beat(queue: LockQueue, request: BeatRequest): Promise<BeatAnswer> {
    this.sent += 1;
    const answer = await queue.beat(request);
    if (answer.status === 'granted') await this.grants?.opened;
    return answer;
  }
}
