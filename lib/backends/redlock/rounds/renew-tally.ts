import type { RenewAnswer } from '../../../contracts/lock-backend.js';
import type { RedisInteger } from '../../redis/scripting/redis-replies.js';
import type { RedlockNode } from '../nodes/redlock-node.js';
import type { Quorum } from './quorum.js';
import type { Tally } from './round.js';

/** Milliseconds left, or 0 where a name is free, or -1 where it is taken; and how many tickets wait. */
export type RenewReply = readonly [remaining: RedisInteger, waiting?: RedisInteger];

/** Counts the answers to a renewal. */
export class RenewTally implements Tally<RenewReply, RenewAnswer> {
  private readonly leases: number[] = [];
  private readonly free: RedlockNode[] = [];
  private taken = 0;
  private waiting = 0;
  private cancelled = false;

  constructor(
    private readonly quorum: Quorum,
    /** Takes the names for the ticket at a node where they are free: the ticket has a majority without it. */
    private readonly topUp: (node: RedlockNode) => void,
    readonly ended: () => void,
  ) {}

  /** The ticket is released: nodes without it stay so. */
  cancel(): void {
    this.cancelled = true;
  }

  add([remaining, waiting]: RenewReply, node: RedlockNode): void {
    const left = Number(remaining);
    if (left > 0) this.leases.push(left);
    else if (left === 0) this.free.push(node);
    else this.taken += 1;
    this.waiting = Math.max(this.waiting, Number(waiting ?? 0));
  }

  /** The lease lasts for as long as a majority keeps it. */
  outcome(): RenewAnswer | undefined {
    const { size, spare } = this.quorum;
    const { waiting } = this;
    if (this.leases.length >= size) return { status: 'renewed', remaining: Math.min(...this.leases), waiting };
    return this.free.length + this.taken > spare ? { status: 'not-owner' } : undefined;
  }

  decided(answer: RenewAnswer | undefined): void {
    if (answer?.status === 'renewed' && !this.cancelled) for (const node of this.free) this.topUp(node);
  }
}
