import type { RedlockNode } from '../nodes/redlock-node.js';
import type { Quorum } from './quorum.js';
import { ask, type Tally } from './round.js';

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

class CountTally implements Tally<unknown, true> {
  private done = 0;

  constructor(private readonly quorum: Quorum) {}

  add(): void {
    this.done += 1;
  }

  outcome(): true | undefined {
    return this.done >= this.quorum.size || undefined;
  }
}
