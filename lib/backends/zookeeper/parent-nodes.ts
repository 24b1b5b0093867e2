import { Exception } from 'node-zookeeper-client';
import { codeOf, unless, type ZooKeeperRequests } from './zookeeper-requests.js';

/** How long (ms) a parent that this process does not use stays. */
const IDLE = 10_000;
const PERIOD = 5_000;
/** The version of data that was never changed: a parent that says how much to add to its tokens stays. */
const UNCHANGED = 0;
/** Where others have nodes below it, they will remove it. */
const STAYS: readonly number[] = [Exception.NOT_EMPTY, Exception.NO_NODE, Exception.BAD_VERSION];

interface Parent {
  /** How many nodes of this process lie below it. */
  nodes: number;
  /** When (monotonic, ms) the last of them was removed. */
  unusedSince: number;
}

/**
 * The nodes below which the tickets of a name lie: created at the first use of the name, and removed some seconds after
 * its last use. The server refuses to remove a node that has children, so that removal races with no one.
 */
export class ParentNodes {
  private readonly parents = new Map<string, Parent>();
  private timer: NodeJS.Timeout | undefined;

  /** @param requests answers `undefined` while there is no connection */
  constructor(
    private readonly root: string,
    private readonly requests: () => ZooKeeperRequests | undefined,
  ) {}

  /** Creates the parent, unless this process has seen it already. */
  use(path: string, requests: ZooKeeperRequests): Promise<unknown> | undefined {
    const known = this.parents.get(path);
    if (known) {
      known.nodes += 1;
      return undefined;
    }
    this.parents.set(path, { nodes: 1, unusedSince: 0 });
    this.timer ??= setTimeout(() => this.sweep(), PERIOD).unref();
    return requests.createPersistent(path).catch(unless(Exception.NODE_EXISTS));
  }

  /** A node below it was removed, or could not be created. */
  leave(path: string): void {
    const parent = this.parents.get(path);
    if (!parent) return;
    parent.nodes -= 1;
    if (parent.nodes <= 0) parent.unusedSince = performance.now();
  }

  /** The server says that it is not there. */
  forget(path: string): void {
    this.parents.delete(path);
  }

  /** All sessions below it have ended. */
  leaveAll(): void {
    const now = performance.now();
    for (const parent of this.parents.values()) Object.assign(parent, { nodes: 0, unusedSince: now });
  }

  /** Creates the node below which all parents lie. */
  async createRoot(requests: ZooKeeperRequests): Promise<void> {
    if (await requests.exists(this.root)) return;
    const parts = this.root.split('/').slice(1);
    const paths = parts.map((_part, index) => `/${parts.slice(0, index + 1).join('/')}`);
    const created = paths.map((path) => requests.createPersistent(path).catch(unless(Exception.NODE_EXISTS)));
    // A node above the root may be there already, and belong to somebody else.
    await Promise.allSettled(created);
    await created.at(-1);
  }

  /** Removes the parent if it is empty. */
  async remove(path: string, requests: ZooKeeperRequests): Promise<void> {
    this.parents.delete(path);
    try {
      await requests.remove(path, UNCHANGED);
    } catch (error) {
      if (!STAYS.includes(codeOf(error))) this.keep(path);
    }
  }

  /** Removes all that are empty. */
  async close(): Promise<void> {
    clearTimeout(this.timer);
    const requests = this.requests();
    if (requests) await Promise.all([...this.parents.keys()].map((path) => this.remove(path, requests)));
    clearTimeout(this.timer);
  }

  private sweep(): void {
    this.timer = undefined;
    const requests = this.requests();
    const since = performance.now() - IDLE;
    for (const [path, { nodes, unusedSince }] of this.parents) {
      if (requests && nodes <= 0 && unusedSince <= since) void this.remove(path, requests);
    }
    if (this.parents.size > 0) this.timer = setTimeout(() => this.sweep(), PERIOD).unref();
  }

  /** It could not be removed: tries it again later. */
  private keep(path: string): void {
    if (this.parents.has(path)) return;
    this.parents.set(path, { nodes: 0, unusedSince: performance.now() });
    this.timer ??= setTimeout(() => this.sweep(), PERIOD).unref();
  }
}
