import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisConnection } from '../../../options/redis-connection.js';
import { Timeouts } from '../../../timing/timeouts.js';
import type { RedlockSettings } from '../redlock-options.js';
import { RedlockNode } from '../nodes/redlock-node.js';
import { redlockScripts } from '../nodes/redlock-scripts.js';
import { Restarts } from '../nodes/restarts.js';

/** How long (ms) the first grant waits at most until the nodes have said which servers they are. */
const LONGEST_MEETING = 5_000;

/** The nodes, and how many of them make a majority. */
export class Quorum {
  readonly nodes: readonly RedlockNode[];
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
    const scripts = redlockScripts(fenceTtl);
    this.nodes = connections.map((connection, index) => new RedlockNode(connection, index, scripts));
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

  close(): void {
    for (const node of this.nodes) node.close();
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
