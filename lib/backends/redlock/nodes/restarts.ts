import type { RedlockNode } from './redlock-node.js';

/** Nodes that start within this time (ms) of the first one belong to a fresh installation, which has no locks yet. */
const FRESH_START = 10_000;

/**
 * Decides which nodes may grant: a node that has restarted without its data knows nothing of the locks whose leases
 * still run, and grants nothing until they have ended.
 *
 * A restart is seen by a change of the run id. A process that meets a node for the first time goes by its uptime: the
 * node has restarted if it started later than another one and not long ago.
 */
export class Restarts {
  constructor(
    private readonly nodes: readonly RedlockNode[],
    /** Milliseconds from the start of a node until it may grant; 0 where nodes keep their locks. */
    private delay: number,
  ) {}

  /** A lease of `ttl` ms is asked for: restarted nodes wait for at least as long. */
  note(ttl: number): void {
    if (this.delay === 0 || ttl <= this.delay) return;
    this.delay = ttl;
    for (const node of this.nodes) node.trusted = false;
  }

  mayGrant(node: RedlockNode): boolean {
    return node.trusted || (node.identified && this.reasonAgainst(node) === undefined);
  }

  /** Why the node may not grant, for messages. */
  reasonAgainst(node: RedlockNode): string | undefined {
    if (!node.identified) return 'is being asked when it started';
    const { start } = node;
    // Its user may not run INFO, so that restarts go unnoticed.
    if (!start) return undefined;
    for (const { index, start: other } of this.nodes) {
      if (index >= node.index) break;
      if (other?.runId !== start.runId) continue;
      return `is the same server as connections[${index}]; give one connection for each independent Redis`;
    }
    const left = start.startedAt + this.delay - performance.now();
    if (left <= 0) {
      node.trusted = true;
      return undefined;
    }
    if (!node.restarted && start.startedAt - this.firstStart() <= FRESH_START) return undefined;
    return `has restarted, and grants nothing for ${Math.ceil(left)} ms more, as locks of before may be missing there`;
  }

  private firstStart(): number {
    let first = Infinity;
    for (const { start } of this.nodes) if (start && start.startedAt < first) first = start.startedAt;
    return first;
  }
}
