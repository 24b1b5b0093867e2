import type { WaiterRequest } from '../../../contracts/lock-backend.js';
import type { ZooKeeperSession } from '../session/zookeeper-session.js';
import { LockNode, nodeKey } from './lock-node.js';
import { parentPath } from './lock-paths.js';
import type { ParentNodes } from './parent-nodes.js';

/** The nodes of this process that own a name, wait for it, or are about to be created. */
export class NodeRegistry {
  private readonly nodes = new Map<string, LockNode>();

  constructor(
    readonly root: string,
    readonly parents: ParentNodes,
  ) {}

  find(request: WaiterRequest): LockNode | undefined {
    return this.nodes.get(nodeKey(parentPath(this.root, request), request.ticket));
  }

  add(session: ZooKeeperSession, request: WaiterRequest): LockNode {
    const node = new LockNode(session, this.root, request);
    this.nodes.set(node.key, node);
    return node;
  }

  has(node: LockNode): boolean {
    return this.nodes.get(node.key) === node;
  }

  ofProcess(process: string): LockNode[] {
    return [...this.nodes.values()].filter((node) => node.process === process);
  }

  /** Forgets the node, and watches nothing for it any more. */
  remove(node: LockNode): void {
    if (!this.has(node)) return;
    this.nodes.delete(node.key);
    node.recent?.leave();
    node.unwatch();
    this.parents.leave(node.parent);
  }

  /** Forgets the nodes of a session, and answers them. */
  removeAll(session: ZooKeeperSession): LockNode[] {
    const removed = [...this.nodes.values()].filter((node) => node.session === session);
    for (const node of removed) this.remove(node);
    return removed;
  }
}
