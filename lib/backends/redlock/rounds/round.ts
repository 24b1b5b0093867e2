import type { Pending } from '../../../contracts/pending.js';
import type { Expiring, Timeout } from '../../../timing/timeouts.js';
import type { RedlockNode } from '../nodes/redlock-node.js';
import { NoQuorum, type NodeFailure } from './no-quorum.js';
import type { Quorum } from './quorum.js';

/** Counts the answers of the nodes to one request. */
export interface Tally<Reply, Answer> {
  add(reply: Reply, node: RedlockNode): void;
  /** The answer, or `undefined` while it is undecided; `open` nodes may still answer. */
  outcome(open: number): Answer | undefined;
  /** The node is not asked, as it has yet to free what an earlier request of the ticket may hold there. */
  postponed?(node: RedlockNode): void;
  /** The node failed although it was asked: it may have carried the request out. */
  failed?(node: RedlockNode): void;
  /** The round is over: with an answer, or without one as too many nodes failed. `unanswered` may answer later. */
  decided?(answer: Answer | undefined, unanswered: Iterable<RedlockNode>): void;
  /** The node answered after the round was over. */
  late?(reply: Reply, node: RedlockNode): void;
  /** No node can answer any more. */
  ended?(): void;
}

/** Stands for a node that must not be asked, as it has yet to free what the ticket may hold there. */
export const POSTPONED = Symbol('postponed');

/** Asks a node; `undefined` when the node must not be asked as it is away or may not grant. */
export type Ask<Reply> = (node: RedlockNode) => Pending<Reply> | typeof POSTPONED | undefined;

/**
 * Asks all nodes at once. Resolves as soon as the tally is decided, so that a slow node is not waited for; rejects with
 * `NoQuorum` when too many nodes have failed. After the time limit, nodes without an answer count as failed.
 */
export function ask<Reply, Answer>(quorum: Quorum, tally: Tally<Reply, Answer>, send: Ask<Reply>): Promise<Answer> {
  return new Promise((resolve, reject) => {
    new Round(quorum, tally, resolve, reject).begin(send);
  });
}

class Round<Reply, Answer> implements Expiring {
  private readonly unanswered = new Set<RedlockNode>();
  private readonly failures: NodeFailure[] = [];
  private readonly postponed: NodeFailure[] = [];
  private timeout: Timeout | undefined;
  private over = false;

  constructor(
    private readonly quorum: Quorum,
    private readonly tally: Tally<Reply, Answer>,
    private readonly resolve: (answer: Answer) => void,
    private readonly reject: (error: NoQuorum) => void,
  ) {}

  begin(send: Ask<Reply>): void {
    for (const node of this.quorum.nodes) {
      const call = send(node);
      if (call === POSTPONED) {
        this.postponed.push({ node, error: new Error('has yet to free what an earlier request may hold there') });
        this.tally.postponed?.(node);
        continue;
      }
      if (!call) {
        this.failures.push({ node });
        continue;
      }
      this.unanswered.add(node);
      call.then(
        (reply) => this.replied(node, reply),
        (error: unknown) => this.failed(node, error),
      );
    }
    this.decide(this.unanswered.size);
    this.endIfAnswered();
    if (this.unanswered.size > 0) this.timeout = this.quorum.timeouts.start(this.quorum.nodeTimeout, this);
  }

  /**
   * The time limit, also of a round that the other nodes have decided: silent nodes are not asked until they answer.
   */
  expire(): void {
    for (const node of this.unanswered) {
      node.missed();
      if (!this.over) this.failures.push({ node });
    }
    if (!this.over) this.decide(0);
  }

  private replied(node: RedlockNode, reply: Reply): void {
    node.answered();
    this.unanswered.delete(node);
    if (this.over) this.tally.late?.(reply, node);
    else {
      this.tally.add(reply, node);
      this.decide(this.unanswered.size);
    }
    this.endIfAnswered();
  }

  private failed(node: RedlockNode, error: unknown): void {
    this.unanswered.delete(node);
    this.tally.failed?.(node);
    if (!this.over) {
      this.failures.push({ node, error });
      this.decide(this.unanswered.size);
    }
    this.endIfAnswered();
  }

  private decide(open: number): void {
    const answer = this.tally.outcome(open);
    if (answer === undefined && open > 0 && this.failures.length <= this.quorum.spare) return;
    this.over = true;
    this.tally.decided?.(answer, this.unanswered);
    if (answer === undefined) this.reject(new NoQuorum(this.quorum, [...this.failures, ...this.postponed]));
    else this.resolve(answer);
  }

  private endIfAnswered(): void {
    if (!this.over || this.unanswered.size > 0) return;
    this.timeout?.leave();
    this.tally.ended?.();
  }
}
