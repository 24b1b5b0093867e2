import type { LockState, ReleaseAnswer, RenewAnswer } from '../../contracts/lock-backend.js';
import { integerOf, leaseOf, type RedisInteger, repliesOf, unexpected } from '../redis/connection/redis-script.js';
import type { Acquisition } from './acquisition.js';
import type { ReleaseKeys } from './redlock-keys.js';
import type { RedlockNode } from './redlock-node.js';
import type { Quorum, Tally } from './round.js';

/** Counts the answers to a release: 1 when the node held the ticket, 0 when a name was free, -1 when it was taken. */
export class ReleaseTally implements Tally<ReleaseAnswer> {
  private readonly disconnects: number;
  private released = 0;
  private gone = 0;
  private taken = 0;

  constructor(
    private readonly quorum: Quorum,
    private readonly ticket: string,
    /** Absent for a request that is not repeated at a node that failed. */
    private readonly keys: ReleaseKeys | undefined,
    /** The request for this ticket that not all nodes have answered. */
    private readonly acquisition: Acquisition | undefined,
  ) {
    this.disconnects = quorum.disconnects;
  }

  add(reply: unknown, node: RedlockNode): void {
    const answer = integerOf(reply);
    if (Math.abs(answer) > 1) throw unexpected(reply, '1, 0 or -1');
    this.acquisition?.releasedAt(node);
    if (answer === 1) this.released += 1;
    else if (answer === 0) this.gone += 1;
    else this.taken += 1;
  }

  late(_: unknown, node: RedlockNode): void {
    this.acquisition?.releasedAt(node);
  }

  failed(node: RedlockNode): void {
    if (this.keys) node.owes(this.ticket, this.keys);
  }

  /**
   * Released, unless the nodes that held the ticket can be no majority. Once a majority has
   * answered, those that failed cannot hold the lock by themselves.
   */
  outcome(open: number): ReleaseAnswer | undefined {
    const { nodes, size, spare } = this.quorum;
    const without = this.gone + this.taken;
    if (without > spare) return { status: this.taken > 0 ? 'taken' : 'gone', resent: this.resent };
    const failed = nodes.length - open - this.released - without;
    const done = this.released >= size || (open === 0 && failed <= spare);
    return done ? { status: 'released', resent: this.resent } : undefined;
  }

  /** Whether a connection was lost meanwhile, after which its client sends requests again. */
  private get resent(): boolean {
    return this.quorum.disconnects !== this.disconnects;
  }
}

/**
 * Counts the answers to a renewal: milliseconds left, or 0 where a name is free, or -1 where it is taken; and how many
 * tickets wait.
 */
export class RenewTally implements Tally<RenewAnswer> {
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

  add(reply: unknown, node: RedlockNode): void {
    const [left, waiting] = firstAndWaiting(reply);
    if (left < -1) throw unexpected(reply, 'a time');
    if (left > 0) this.leases.push(left);
    else if (left === 0) this.free.push(node);
    else this.taken += 1;
    this.waiting = Math.max(this.waiting, waiting);
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

/**
 * The whole numbers that RENEW and MINT return: the second, how many other tickets wait, follows a first one that
 * grants.
 *
 * @throws Error for what they do not return
 */
export function firstAndWaiting(reply: unknown): readonly [first: number, waiting: number] {
  const parts = repliesOf(reply, Array.isArray(reply) && reply.length === 2 ? 2 : 1);
  return [integerOf(parts[0]), parts.length === 1 ? 0 : integerOf(parts[1])];
}

/** Finds the ticket that owns a name at a majority of the nodes; `null` where nobody can. */
export class InspectTally implements Tally<LockState | null> {
  /** By owner: what is left of its lease at each node. */
  private readonly leases = new Map<string, number[]>();
  private unissued = 0;
  private waiting = 0;
  private answered = 0;

  constructor(private readonly quorum: Quorum) {}

  add(reply: unknown): void {
    const [owner, pttl, unissued, waiting] = repliesOf(reply, 4);
    if (typeof owner !== 'string') throw unexpected(reply, 'an owner');
    const lease = leaseOf(pttl as RedisInteger);
    const next = unissued === '' ? 0 : integerOf(unissued);
    this.waiting = Math.max(this.waiting, integerOf(waiting));
    this.unissued = Math.max(this.unissued, next);
    this.answered += 1;
    if (owner === '') return;
    const leases = this.leases.get(owner) ?? [];
    leases.push(lease);
    this.leases.set(owner, leases);
  }

  /** A node that does not answer counts for the owner: the name is free only when nobody can have a majority. */
  outcome(open: number): LockState | null | undefined {
    const { nodes, size } = this.quorum;
    const [owner, leases = []] = [...this.leases].toSorted(([, a], [, b]) => b.length - a.length)[0] ?? [];
    if (leases.length + nodes.length - this.answered < size) return null;
    if (owner === undefined || (leases.length < size && open > 0)) return undefined;
    const fencingToken = this.unissued === 0 ? null : this.unissued - 1;
    return { owner, ttl: Math.min(...leases), fencingToken, waiting: this.waiting };
  }
}
