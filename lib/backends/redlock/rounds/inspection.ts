import type { LockState } from '../../../contracts/lock-backend.js';
import { leaseOf, type RedisInteger } from '../../redis/scripting/redis-replies.js';
import type { Quorum } from './quorum.js';
import type { Tally } from './round.js';

/** What INSPECT returns. */
export type InspectReply = readonly [owner: string, pttl: RedisInteger, unissued: RedisInteger, waiting: RedisInteger];

/** The state of a name, or that nobody owns it. */
export interface Inspection {
  readonly state: LockState | null;
}

/** Finds the ticket that owns a name at a majority of the nodes. */
export class InspectTally implements Tally<InspectReply, Inspection> {
  /** By owner: what is left of its lease at each node. */
  private readonly leases = new Map<string, number[]>();
  private unissued = 0;
  private waiting = 0;
  private answered = 0;

  constructor(private readonly quorum: Quorum) {}

  add([owner, pttl, unissued, waiting]: InspectReply): void {
    this.answered += 1;
    this.unissued = Math.max(this.unissued, Number(unissued));
    this.waiting = Math.max(this.waiting, Number(waiting));
    if (owner === '') return;
    const leases = this.leases.get(owner) ?? [];
    leases.push(leaseOf(pttl));
    this.leases.set(owner, leases);
  }

  /** A node that does not answer counts for the owner: the name is free only when nobody can have a majority. */
  outcome(open: number): Inspection | undefined {
    const { nodes, size } = this.quorum;
    const [owner, leases = []] = [...this.leases].toSorted(([, a], [, b]) => b.length - a.length)[0] ?? [];
    if (leases.length + nodes.length - this.answered < size) return { state: null };
    if (owner === undefined || (leases.length < size && open > 0)) return undefined;
    const fencingToken = this.unissued === 0 ? null : this.unissued - 1;
    return { state: { owner, ttl: Math.min(...leases), fencingToken, waiting: this.waiting } };
  }
}
