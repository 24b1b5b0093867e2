import type { RedlockNode } from '../nodes/redlock-node.js';
import type { Quorum } from './quorum.js';

/** A node that failed, or was not asked: then without an error. */
export interface NodeFailure {
  readonly node: RedlockNode;
  readonly error?: unknown;
}

/** Fewer nodes than a majority answered. Names each of the others with its cause and the remedy. */
export class NoQuorum extends AggregateError {
  override readonly name = 'NoQuorum';

  constructor({ nodes, size, restarts }: Quorum, failures: readonly NodeFailure[]) {
    const causes = failures.map(({ node, error }) => {
      const against = error === undefined && !node.absent && !node.silent ? restarts.reasonAgainst(node) : undefined;
      return against === undefined ? node.diagnose(error) : new Error(`${node.server} ${against}`);
    });
    const shown = causes.map(({ message }) => message).join(' | ');
    super(causes, `${failures.length} of ${nodes.length} nodes failed, but ${size} must agree: ${shown}`);
  }
}
