import { Exception } from 'node-zookeeper-client';
import { unless, type ZooKeeperRequests } from './zookeeper-requests.js';

interface Watch {
  readonly listeners: Set<() => void>;
  /** Whether the node was there. */
  readonly placed: Promise<boolean>;
}

/**
 * Tells of deleted nodes, in one session. A watch of the children of a node that has none fires when the node is
 * deleted, and, unlike a watch of its data, not when its owner writes to it. The library would keep one listener for
 * each call; here one watch serves all listeners of a node.
 */
export class DeletionWatches {
  private readonly watches = new Map<string, Watch>();

  constructor(private readonly requests: ZooKeeperRequests) {}

  /**
   * Calls `listener` once when the node is deleted. Answers `false`, and never calls it, if the node is gone already.
   */
  async add(path: string, listener: () => void): Promise<boolean> {
    const watch = this.watches.get(path) ?? this.place(path);
    watch.listeners.add(listener);
    return watch.placed;
  }

  remove(path: string, listener: () => void): void {
    this.watches.get(path)?.listeners.delete(listener);
  }

  private place(path: string): Watch {
    const listeners = new Set<() => void>();
    const fired = () => {
      this.watches.delete(path);
      for (const listener of listeners) listener();
    };
    const placed = this.requests.children(path, fired).then(
      () => true,
      (error: unknown) => {
        this.watches.delete(path);
        unless(Exception.NO_NODE)(error);
        return false;
      },
    );
    const watch = { listeners, placed };
    this.watches.set(path, watch);
    return watch;
  }
}
