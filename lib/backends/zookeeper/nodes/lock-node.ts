import type { TokenRange, WaiterRequest } from '../../../contracts/lock-backend.js';
import type { Place } from '../../../timing/linked-list.js';
import type { ZooKeeperSession } from '../session/zookeeper-session.js';
import { childPrefix, parentPath } from './lock-paths.js';

/** The node of one ticket at one name, in the session that created it. */
export class LockNode {
  readonly prefix: string | undefined;
  readonly name: string;
  readonly ticket: string;
  readonly parent: string;
  /** What the path of the node begins with; ZooKeeper appends the sequence number. */
  readonly key: string;
  /** Set once the server has answered that it created the node. */
  path: string | undefined;
  /** Settles with the first answer to the ticket, or its failure. */
  entered: Promise<unknown> = Promise.resolve();
  /** The newest tokens of its grant; `undefined` while it waits. */
  tokens: TokenRange | undefined;
  /** When (monotonic, ms) it was granted. */
  grantedAt = 0;
  /** Present for a moment after the grant. */
  recent: Place<LockNode> | undefined;
  /** The path that it watches: of the node before it, or, while it is granted, its own. */
  watched: { readonly path: string; readonly listener: () => void } | undefined;

  constructor(
    readonly session: ZooKeeperSession,
    root: string,
    request: WaiterRequest,
  ) {
    this.prefix = request.prefix;
    this.name = request.name;
    this.ticket = request.ticket;
    this.parent = parentPath(root, request);
    this.key = nodeKey(this.parent, request.ticket);
  }

  /** What the name of the node begins with. */
  get childPrefix(): string {
    return childPrefix(this.ticket);
  }

  /** What its process is known by. */
  get process(): string {
    return processOf(this.ticket);
  }

  /** Calls `listener` once when the node at `path` is deleted; answers `false` if it is gone already. */
  watch(path: string, listener: () => void): Promise<boolean> {
    if (this.watched?.path === path) return this.session.deletions.add(path, this.watched.listener);
    this.unwatch();
    this.watched = { path, listener };
    return this.session.deletions.add(path, listener);
  }

  unwatch(): void {
    if (this.watched) this.session.deletions.remove(this.watched.path, this.watched.listener);
    this.watched = undefined;
  }
}

export function nodeKey(parent: string, ticket: string): string {
  return `${parent}/${childPrefix(ticket)}`;
}

/** What a ticket begins with, before a `:` and a number. */
export function processOf(ticket: string): string {
  const end = ticket.lastIndexOf(':');
  return end === -1 ? ticket : ticket.slice(0, end);
}
