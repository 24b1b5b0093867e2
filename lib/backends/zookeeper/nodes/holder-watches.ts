import { LinkedList } from '../../../timing/linked-list.js';
import type { LockNode } from './lock-node.js';

/** After how long (ms) a holder is watched: most locks are released sooner, and cost nothing. */
const PATIENCE = 25;

/** Finds the nodes that hold their name for longer than a moment. */
export class HolderWatches {
  private readonly recent = new LinkedList<LockNode>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly watch: (node: LockNode) => void) {}

  add(node: LockNode): void {
    node.recent = this.recent.push(node);
    this.timer ??= setTimeout(() => this.look(), PATIENCE).unref();
  }

  private look(): void {
    this.timer = undefined;
    const since = performance.now() - PATIENCE;
    for (let place = this.recent.firstPlace; place && place.value.grantedAt <= since; place = this.recent.firstPlace) {
      place.leave();
      this.watch(place.value);
    }
    if (this.recent.first) this.timer = setTimeout(() => this.look(), PATIENCE).unref();
  }
}
