import type { Pending } from '../../../contracts/pending.js';
import type { Expiring, Timeout } from '../../../timing/timeouts.js';
import { BatchedCall } from '../../batching/batched-call.js';
import type { ScriptCall } from '../../redis/scripting/encoded-call.js';
import type { RedlockNode } from '../nodes/redlock-node.js';
import { NoQuorum, type NodeFailure } from './no-quorum.js';
import type { Quorum } from './quorum.js';

/** Counts the answers of the nodes to one request. */
export interface Tally<Reply, Answer> {
  /** Whether a reply counts only on the connection on which it was asked for. */
  readonly bound?: boolean;
  add(reply: Reply, node: RedlockNode): void;
  /** The answer, or `undefined` while it is undecided; `open` nodes may still answer. */
  outcome(open: number): Answer | undefined;
  /** The node is not asked, as it has yet to free what an earlier request of the ticket may hold there. */
  postponed?(node: RedlockNode): void;
  /** The node failed although it was asked: it may have carried the request out. */
  failed?(node: RedlockNode): void;
  /** The round is over: with an answer, or without one as too many nodes failed. */
  decided?(answer: Answer | undefined, round: Decided): void;
  /** The node answered after the round was over. */
  late?(reply: Reply, node: RedlockNode): void;
  /** No node can answer any more. */
  ended?(): void;
}

/** A round that is over. */
export interface Decided {
  /** The nodes that may answer later. */
  unanswered(): readonly RedlockNode[];
}

/**
 * Asks a node, which answers to `call` in a later turn of the event loop; or says why the node must not be asked: it is
 * away or may not grant, or it has yet to free what the ticket may hold there.
 */
export type Ask = (node: RedlockNode, call: ScriptCall) => 'away' | 'postponed' | undefined;

/**
 * Asks all nodes at once. Settles as soon as the tally is decided, so that a slow node is not waited for; fails with
 * `NoQuorum` when too many nodes have failed. After the time limit, nodes without an answer count as failed.
 */
export function ask<Reply, Answer>(quorum: Quorum, tally: Tally<Reply, Answer>, send: Ask): Pending<Answer> {
  const call = new BatchedCall((answer) => answer as Answer);
  beginRound(quorum, tally, call, send);
  return call;
}

/** As `ask`, but settles `call`. */
export function beginRound<Reply, Answer>(
  quorum: Quorum,
  tally: Tally<Reply, Answer>,
  call: ScriptCall,
  send: Ask,
): void {
  new Round(quorum, tally, call).begin(send);
}

class Round<Reply, Answer> implements Expiring, Decided {
  /** Of the nodes that are asked. */
  private readonly ballots: Ballot<Reply>[] = [];
  private readonly failures: NodeFailure[] = [];
  private postponed: NodeFailure[] | undefined;
  private timeout: Timeout | undefined;
  private open = 0;
  private over = false;

  constructor(
    private readonly quorum: Quorum,
    private readonly tally: Tally<Reply, Answer>,
    private readonly call: ScriptCall,
  ) {}

  begin(send: Ask): void {
    for (const node of this.quorum.nodes) {
      const ballot = new Ballot(this, node);
      const notAsked = send(node, ballot);
      if (notAsked === undefined) this.ballots.push(ballot);
      else if (notAsked === 'away') this.failures.push({ node });
      else this.postpone(node);
    }
    this.open = this.ballots.length;
    if (this.open > 0) this.timeout = this.quorum.timeouts.start(this.quorum.nodeTimeout, this);
    if (this.open > 0 && this.failures.length <= this.quorum.spare) return;
    setImmediate(() => {
      this.decide();
      this.endIfAnswered();
    });
  }

  unanswered(): readonly RedlockNode[] {
    return this.ballots.filter(({ answered }) => !answered).map(({ node }) => node);
  }

  /**
   * The time limit, also of a round that the other nodes have decided: silent nodes are not asked until they answer.
   */
  expire(): void {
    const { over } = this;
    for (const node of this.unanswered()) {
      node.missed();
      if (!over) this.failures.push({ node });
    }
    if (!over) this.decide(0);
  }

  replied(node: RedlockNode, reply: Reply, disconnects: number): void {
    const { tally } = this;
    if (tally.bound && node.scripts.disconnects !== disconnects) {
      return this.failed(node, new Error('the connection was lost meanwhile'));
    }
    node.answered();
    this.open -= 1;
    if (this.over) tally.late?.(reply, node);
    else {
      tally.add(reply, node);
      this.decide();
    }
    this.endIfAnswered();
  }

  failed(node: RedlockNode, error: unknown): void {
    this.open -= 1;
    this.tally.failed?.(node);
    if (!this.over) {
      this.failures.push({ node, error });
      this.decide();
    }
    this.endIfAnswered();
  }

  private postpone(node: RedlockNode): void {
    const error = new Error('has yet to free what an earlier request may hold there');
    (this.postponed ??= []).push({ node, error });
    this.tally.postponed?.(node);
  }

  private decide(open = this.open): void {
    if (this.over) return;
    const answer = this.tally.outcome(open);
    if (answer === undefined && open > 0 && this.failures.length <= this.quorum.spare) return;
    this.over = true;
    this.tally.decided?.(answer, this);
    if (answer !== undefined) this.call.settle(answer);
    else this.call.fail(new NoQuorum(this.quorum, [...this.failures, ...(this.postponed ?? [])]));
  }

  private endIfAnswered(): void {
    if (!this.over || this.open > 0) return;
    this.timeout?.leave();
    this.tally.ended?.();
  }
}

/** What one node answers in a round. */
class Ballot<Reply> implements ScriptCall {
  answered = false;
  /** How often the connection of the node had been lost when it was asked. */
  private readonly disconnects: number;

  constructor(
    private readonly round: Pick<Round<Reply, unknown>, 'replied' | 'failed'>,
    readonly node: RedlockNode,
  ) {
    this.disconnects = node.scripts.disconnects;
  }

  settle(reply: unknown): void {
    this.answered = true;
    this.round.replied(this.node, reply as Reply, this.disconnects);
  }

  fail(error: unknown): void {
    this.answered = true;
    this.round.failed(this.node, error);
  }
}
