import { setTimeout as sleep } from 'node:timers/promises';
import { isLasting, type Pending } from '../../contracts/store.js';
import type { RedisConnection } from '../../options/redis-connection.js';
import { type Expiring, type Timeout, Timeouts } from '../../timing/clock.js';
import { BatchedCall } from '../batch.js';
import type { ScriptCall } from '../redis/connection/script-batch.js';
import { RedlockNode, redlockScripts, Restarts, type RedlockScripts } from './redlock-node.js';
import type { RedlockSettings } from './redlock-options.js';

/** Counts the answers of the nodes to one request. */
export interface Tally<Answer> {
  /** Whether a reply counts only on the connection on which it was asked for. */
  readonly bound?: boolean;
  /** @throws for a reply of another kind, before it counts anything: then the node has failed */
  add(reply: unknown, node: RedlockNode): void;
  /** The answer, or `undefined` while it is undecided; `open` nodes may still answer. */
  outcome(open: number): Answer | undefined;
  /** The node is not asked, as it has yet to free what an earlier request of the ticket may hold there. */
  postponed?(node: RedlockNode): void;
  /** The node failed although it was asked: it may have carried the request out. */
  failed?(node: RedlockNode): void;
  /** The round is over: with an answer, or without one as too many nodes failed. */
  decided?(answer: Answer | undefined, round: Round<Answer>): void;
  /** The node answered after the round was over. */
  late?(reply: unknown, node: RedlockNode): void;
  /** No node can answer any more. */
  ended?(): void;
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
export function ask<Answer>(quorum: Quorum, tally: Tally<Answer>, send: Ask): Pending<Answer> {
  const call = new BatchedCall<Answer>();
  new Round(quorum, tally, call).begin(send);
  return call;
}

/** Sends a command to all nodes that may be asked; resolves when a majority has carried it out. */
export async function onMajority(quorum: Quorum, send: (node: RedlockNode) => Promise<unknown>): Promise<void> {
  await ask(quorum, new CountTally(quorum), (node, call) => {
    if (quorum.skips(node)) return 'away';
    send(node).then(
      (reply) => call.settle(reply),
      (error: unknown) => call.fail(error),
    );
    return undefined;
  });
}

/** One request to all nodes, as `ask` describes it; settles `call`. */
export class Round<Answer> implements Expiring {
  /** Of the nodes that are asked. */
  private readonly ballots: Ballot[] = [];
  private readonly failures: NodeFailure[] = [];
  private postponed: NodeFailure[] | undefined;
  private timeout: Timeout | undefined;
  private open = 0;
  private over = false;

  constructor(
    private readonly quorum: Quorum,
    private readonly tally: Tally<Answer>,
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

  /** The nodes that may answer later. */
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

  replied(node: RedlockNode, reply: unknown, disconnects: number): void {
    const { tally } = this;
    if (tally.bound && node.scripts.disconnects !== disconnects) {
      return this.failed(node, new Error('the connection was lost meanwhile'));
    }
    node.answered();
    node.refuses = false;
    if (!this.over) {
      try {
        tally.add(reply, node);
      } catch (error) {
        return this.failed(node, error);
      }
    }
    this.open -= 1;
    if (this.over) tally.late?.(reply, node);
    else this.decide();
    this.endIfAnswered();
  }

  failed(node: RedlockNode, error: unknown): void {
    this.open -= 1;
    this.tally.failed?.(node);
    if (isLasting(node.diagnose(error), { ofKey: false })) node.refuses = true;
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

/** How long (ms) the first grant waits at most until the nodes have said which servers they are. */
const LONGEST_MEETING = 5_000;

/** The nodes, and how many of them make a majority. */
export class Quorum {
  readonly nodes: readonly RedlockNode[];
  readonly scripts: RedlockScripts;
  /** More than half of the nodes. */
  readonly size: number;
  readonly restarts: Restarts;
  readonly nodeTimeout: number;
  /** Adds the time in which this process stood still, so that it reads what has arrived first. */
  readonly timeouts = new Timeouts({ countsStandstills: false });
  /** Whether grants may be asked for; before, the nodes are being asked which servers they are. */
  met = false;
  readonly meeting: Promise<void>;

  constructor(connections: readonly RedisConnection[], { nodeTimeout, restartDelay, fenceTtl }: RedlockSettings) {
    this.scripts = redlockScripts(fenceTtl);
    this.nodes = connections.map((connection, index) => new RedlockNode(connection, index, this.scripts));
    this.size = Math.floor(this.nodes.length / 2) + 1;
    this.nodeTimeout = nodeTimeout;
    this.restarts = new Restarts(this.nodes, restartDelay);
    this.meeting = this.meet().then(() => {
      this.met = true;
    });
  }

  /** How many nodes may fail. */
  get spare(): number {
    return this.nodes.length - this.size;
  }

  /** A silent node is asked only where there is no majority without it. */
  skips(node: RedlockNode): boolean {
    return (
      node.absent || (node.silent && this.nodes.filter((each) => !each.absent && !each.silent).length >= this.size)
    );
  }

  /** Grows with each connection that is lost. */
  get disconnects(): number {
    let sum = 0;
    for (const { scripts } of this.nodes) sum += scripts.disconnects;
    return sum;
  }

  async close(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.close(this.nodeTimeout)));
  }

  /**
   * Which node has restarted shows only in comparison with the others. A node that cannot be reached delays the first
   * grant by its time limit, once a majority has answered.
   */
  private async meet(): Promise<void> {
    let known = 0;
    const majority = new Promise<void>((resolve) => {
      for (const { met } of this.nodes) void met.then(() => (known += 1) === this.size && resolve());
    });
    await Promise.race([
      Promise.all(this.nodes.map(({ met }) => met)),
      majority.then(() => sleep(this.nodeTimeout, undefined, { ref: false })),
      sleep(LONGEST_MEETING, undefined, { ref: false }),
    ]);
  }
}

/** A node that failed, or was not asked: then without an error. */
export interface NodeFailure {
  readonly node: RedlockNode;
  readonly error?: unknown;
}

/** Fewer nodes than a majority answered. Names each of the others with its cause and the remedy. */
export class NoQuorum extends AggregateError {
  override readonly name = 'NoQuorum';
  /**
   * Whether the nodes that do not go on refusing are too few. Nodes count, too, whose refusal came after this round was
   * decided, as beside one that is down.
   */
  readonly lasts: boolean;

  constructor({ nodes, size, restarts }: Quorum, failures: readonly NodeFailure[]) {
    const causes = failures.map(({ node, error }) => {
      const against = error === undefined && !node.absent && !node.silent ? restarts.reasonAgainst(node) : undefined;
      return against === undefined ? node.diagnose(error) : new Error(`${node.server} ${against}`);
    });
    const shown = causes.map(({ message }) => message).join(' | ');
    super(causes, `${failures.length} of ${nodes.length} nodes failed, but ${size} must agree: ${shown}`);
    const refusing = new Set(nodes.filter(({ refuses }) => refuses));
    for (const [index, { node }] of failures.entries())
      if (isLasting(causes[index], { ofKey: true })) refusing.add(node);
    this.lasts = refusing.size > nodes.length - size;
  }
}

/** What one node answers in a round. */
class Ballot implements ScriptCall {
  answered = false;
  /** How often the connection of the node had been lost when it was asked. */
  private readonly disconnects: number;

  constructor(
    private readonly round: Pick<Round<unknown>, 'replied' | 'failed'>,
    readonly node: RedlockNode,
  ) {
    this.disconnects = node.scripts.disconnects;
  }

  settle(reply: unknown): void {
    this.answered = true;
    this.round.replied(this.node, reply, this.disconnects);
  }

  fail(error: unknown): void {
    this.answered = true;
    this.round.failed(this.node, error);
  }
}

class CountTally implements Tally<true> {
  private done = 0;

  constructor(private readonly quorum: Quorum) {}

  add(): void {
    this.done += 1;
  }

  outcome(): true | undefined {
    return this.done >= this.quorum.size || undefined;
  }
}
