import type { AcquireAnswer, AcquireRequest, Busy, TokenRange } from '../../contracts/lock-backend.js';
import type { BriefMap } from '../../timing/brief-collections.js';
import { BatchedCall } from '../batch.js';
import type { ScriptCall } from '../redis/connection/script-batch.js';
import { integerOf, leaseOf, type RedisInteger, repliesOf, unexpected } from '../redis/connection/redis-script.js';
import { WAITER_TTL, GRANT_TOKENS } from './acquire.lua.js';
import type { LockKeys } from '../redis/locks/redis-lock-keys.js';
import { releaseKeys, type ReleaseKeys } from './redlock-keys.js';
import type { RedlockNode } from './redlock-node.js';
import type { Quorum, Tally, Round } from './round.js';
import type { TokenClock } from './token-reservation.js';

/** What ACQUIRE returns for one call. */
type AcquireReply =
  | { readonly granted: true; readonly time: number; readonly unissued: number; readonly waiting: number }
  | {
      readonly granted: false;
      readonly time: number;
      readonly name: string;
      readonly owner: string;
      readonly remaining: number;
    };

/** @throws Error for what ACQUIRE does not return */
function acquireReply(reply: unknown, names: readonly string[]): AcquireReply {
  if (!Array.isArray(reply)) {
    const time = integerOf(reply);
    if (time < 1) throw unexpected(reply, 'a time');
    return { granted: true, time, unissued: 0, waiting: 0 };
  }
  const granted = integerOf(reply[0]);
  if (granted === 1) {
    const [, time, unissued, waiting] = repliesOf(reply, 4).map(integerOf) as [number, number, number, number];
    return { granted: true, time, unissued, waiting };
  }
  const [, index, owner, pttl, time] = repliesOf(reply, 5);
  const name = names[integerOf(index) - 1];
  if (granted !== 0 || name === undefined || typeof owner !== 'string') throw unexpected(reply, 'the owner of a name');
  return { granted: false, time: integerOf(time), name, owner, remaining: leaseOf(pttl as RedisInteger) };
}

/** A request for one name or more, and what makes their keys. */
export interface NamesRequest extends Omit<AcquireRequest, 'name'> {
  readonly names: readonly string[];
  readonly keys: LockKeys;
}

/** Granted by a majority; the proposed tokens are reserved there, unless `raise` names the least that can be. */
interface MajorityGrant {
  readonly status: 'granted';
  /** The first token not yet issued, as far as the nodes know that refused the proposed ones; 0: they are reserved. */
  readonly raise: number;
  readonly waiting: number;
}

/** The requests that not all nodes have answered: the last one of each ticket. */
export type Acquisitions = BriefMap<string, Acquisition>;

interface Refusal {
  readonly name: string;
  readonly remaining: number;
  votes: number;
}

/**
 * The votes for one request of a ticket, and what becomes of the granted ones: those of a ticket that gets no majority,
 * or was released before they came, are undone.
 */
export class Acquisition implements Tally<MajorityGrant | Busy> {
  readonly bound = true;
  private readonly granted: RedlockNode[] = [];
  private doubtful: RedlockNode[] | undefined;
  private refusals: Map<string, Refusal> | undefined;
  private times: number[] | undefined;
  private refused = 0;
  private postponedNodes = 0;
  private reserved = 0;
  private unissued = 0;
  private waiting = 0;
  /** Whether the nodes have yet to decide. */
  undecided = true;
  private givenUp = false;
  private released = false;
  /** Nodes that answered the release before the request itself, which was sent again after it. */
  private overtaken: RedlockNode[] | undefined;

  constructor(
    private readonly quorum: Quorum,
    private readonly request: NamesRequest,
    private readonly acquisitions: Acquisitions,
  ) {
    const { ticket } = request;
    acquisitions.delete(ticket);
    acquisitions.add(ticket, this);
  }

  /** What a majority of the nodes stated as their time (µs), without the wrong clock of one. */
  get time(): number | undefined {
    const { times } = this;
    if (!times || times.length < this.quorum.size) return undefined;
    return times.toSorted((a, b) => a - b)[times.length >> 1];
  }

  /** Whether the ticket was released, or its request given up. */
  get cancelled(): boolean {
    return this.givenUp || this.released;
  }

  /** The ticket is released at all nodes: on each connection, the release follows the request. */
  release(): void {
    this.released = true;
  }

  /** The node has answered the release of the ticket: it undoes what it may grant after that. */
  releasedAt(node: RedlockNode): void {
    (this.overtaken ??= []).push(node);
  }

  /** Does it for each of the names: by its keys, as a release takes them. */
  private forEachName(what: (ticket: string, keys: ReleaseKeys) => void): void {
    const { keys, names, ticket } = this.request;
    for (const name of names) what(ticket, releaseKeys(keys, name));
  }

  private undoAt(node: RedlockNode): void {
    this.forEachName((ticket, keys) => node.undo(ticket, keys));
  }

  add(reply: unknown, node: RedlockNode): void {
    const answer = acquireReply(reply, this.request.names);
    // 1 stands for a grant whose time was not read.
    if (answer.time !== 1) (this.times ??= []).push(answer.time);
    if (answer.granted) return this.grantedBy(node, answer.unissued, answer.waiting);
    this.refused += 1;
    const refusals = (this.refusals ??= new Map());
    const { owner, name, remaining } = answer;
    const refusal = refusals.get(owner);
    if (refusal) refusal.votes += 1;
    else refusals.set(owner, { name, remaining, votes: 1 });
  }

  postponed(): void {
    this.postponedNodes += 1;
  }

  failed(node: RedlockNode): void {
    if (this.givenUp) this.undoAt(node);
    else (this.doubtful ??= []).push(node);
  }

  outcome(open: number): MajorityGrant | Busy | undefined {
    const { size, spare, nodes } = this.quorum;
    const { waiting, unissued, refused } = this;
    const granted = this.granted.length;
    if (granted >= size) return { status: 'granted', raise: this.reserved >= size ? 0 : unissued, waiting };
    const failed = nodes.length - open - granted - refused - this.postponedNodes;
    // Without a refusal, a node that is yet to answer may name the owner.
    const decidable = granted + open < size && (refused > 0 || open === 0);
    return decidable && failed <= spare ? this.busy() : undefined;
  }

  decided(answer: MajorityGrant | Busy | undefined, round: Round<MajorityGrant | Busy>): void {
    this.undecided = false;
    if (answer?.status === 'granted') return;
    this.giveUp();
    for (const node of round.unanswered()) this.forEachName((ticket, keys) => node.doubt(ticket, keys));
  }

  /** Frees what the nodes have granted: it is no majority, or came too late. */
  giveUp(): void {
    this.givenUp = true;
    for (const node of this.granted) this.undoAt(node);
    for (const node of this.doubtful ?? []) this.undoAt(node);
  }

  late(reply: unknown, node: RedlockNode): void {
    if (!this.givenUp && !this.overtaken?.includes(node)) return;
    const refused = Array.isArray(reply) && Number(reply[0]) === 0;
    if (refused) node.settle(this.request.ticket);
    else this.undoAt(node);
  }

  ended(): void {
    const { acquisitions } = this;
    const { ticket } = this.request;
    if (acquisitions.get(ticket) === this) acquisitions.delete(ticket);
  }

  private grantedBy(node: RedlockNode, unissued: number, waiting: number): void {
    this.granted.push(node);
    if (unissued === 0) this.reserved += 1;
    this.unissued = Math.max(this.unissued, unissued);
    this.waiting = Math.max(this.waiting, waiting);
  }

  /** The owner at most of the nodes; after a split vote, one of several; none while nodes free what they granted. */
  private busy(): Busy {
    const [most] = [...(this.refusals ?? [])].toSorted(([, a], [, b]) => b.votes - a.votes);
    if (!most) return { status: 'busy', owner: '', remaining: WAITER_TTL };
    const [owner, { name, remaining }] = most;
    return { status: 'busy', owner, name, remaining };
  }
}

const GIVEN_UP = 'the request was given up before it was granted';

/** Reserves fencing tokens from `least` on for the ticket of a request; `null` when it owns the names no more. */
export type ReserveTokens = (request: NamesRequest, least: number) => Promise<TokenRange | null>;

/**
 * What becomes of a request for names. What a majority grants counts once its fencing tokens are reserved, while the
 * lease runs, and unless the request was given up meanwhile; else it is undone.
 */
export class PendingGrant implements ScriptCall {
  readonly answer = new BatchedCall<AcquireAnswer>();
  private readonly startedAt = performance.now();
  /** The first of the tokens that the nodes are asked to reserve. */
  private first = 0;

  constructor(
    private readonly request: NamesRequest,
    private readonly acquisition: Acquisition,
    private readonly clock: TokenClock,
    private readonly reserve: ReserveTokens,
  ) {}

  /** Proposes tokens: the nodes are asked now. Returns the first one after them. */
  propose(): number {
    this.first = this.clock.propose(this.request.leastToken);
    return this.first + GRANT_TOKENS;
  }

  /** The nodes have decided. */
  settle(answer: MajorityGrant | Busy): void {
    const { time } = this.acquisition;
    if (time !== undefined) this.clock.heard(time, this.startedAt);
    if (answer.status === 'busy') return this.answer.settle(answer);
    const { raise, waiting } = answer;
    if (raise === 0) return this.granted(waiting, { first: this.first, count: GRANT_TOKENS });
    this.reserve(this.request, Math.max(raise, this.request.leastToken ?? 0)).then(
      (tokens) => {
        if (tokens) this.granted(waiting, tokens);
        else this.undo(new Error('the names were lost while fencing tokens were reserved'));
      },
      (error: unknown) => this.undo(error),
    );
  }

  fail(error: unknown): void {
    this.answer.fail(error);
  }

  /** The request was given up before the nodes were asked. */
  cancel(): void {
    this.fail(new Error(GIVEN_UP));
  }

  private granted(waiting: number, tokens: TokenRange): void {
    const { ttl } = this.request;
    const late = performance.now() - this.startedAt;
    if (this.acquisition.cancelled) this.undo(new Error(GIVEN_UP));
    else if (late < ttl) this.answer.settle({ status: 'granted', tokens, remaining: ttl, waiting });
    else this.undo(new Error(`the nodes granted after ${Math.round(late)} ms, when the lease had ended`));
  }

  private undo(error: unknown): void {
    this.acquisition.giveUp();
    this.fail(error);
  }
}
