import { Exception } from 'node-zookeeper-client';
import type { QueueAnswer, ReleaseAnswer, RenewAnswer, TokenRange } from '../../contracts/lock-backend.js';
import { processOf } from '../../contracts/lock-requests.js';
import {
  type FencingTokens,
  LockNode,
  type TicketAt,
  isWorn,
  nodeKey,
  childPrefix,
  inOrder,
  ONCE,
} from './lock-node.js';
import type { ParentNodes } from './parent-nodes.js';
import type { ZooKeeperConnection } from './zookeeper-connection.js';
import type { QueuePlaces } from './zookeeper-lock-queue.js';
import { codeOf, UNANSWERED, unless, type Children, type ZooKeeperRequests } from './zookeeper-requests.js';
import type { ZooKeeperSession } from './zookeeper-session.js';

/** How often a node is created anew because its parent was removed meanwhile. */
const TRIES = 5;
/** How many requeues without an answer are remembered. */
const MOST_REQUEUED = 1_000;
const NO_DATA = Buffer.alloc(0);
const ignored = () => {};

/** Creates, passes on and removes the nodes of the tickets of this process. */
export class LockNodes {
  /** What each process writes to its nodes. */
  private readonly labels = new Map<string, Buffer>();
  /** Nodes that may be there without being known, and must go unless their ticket is asked for again. */
  private readonly doomed = new Map<string, DoomedNode>();
  /** The owners whose requeue was not answered, and their sessions. */
  private readonly requeued = new Map<string, ZooKeeperSession>();

  constructor(
    private readonly connection: ZooKeeperConnection,
    private readonly registry: NodeRegistry,
    private readonly places: QueuePlaces,
    private readonly tokens: FencingTokens,
  ) {}

  /** Takes the name if it is free; else waits for it, or removes the node again. */
  async enter(request: TicketAt, waits: boolean): Promise<QueueAnswer> {
    const session = this.connection.current ?? (await this.connection.opened());
    const known = this.registry.find(request);
    if (known) return this.enterAgain(known, request, waits);
    const node = this.registry.add(session, request);
    const doomed = this.doomed.get(node.key);
    const answer = doomed ? this.adopt(node, doomed, waits) : this.create(node, waits);
    node.entered = answer;
    if ((await answer).status === 'busy' && !waits) this.withdraw(node);
    return answer;
  }

  /** `undefined`: the ticket neither owns the name nor waits for it. */
  async beat(request: TicketAt): Promise<QueueAnswer | undefined> {
    const node = this.registry.find(request);
    await node?.entered;
    return node && (await this.connects(node)) ? this.places.look(node) : undefined;
  }

  async leave(request: TicketAt): Promise<ReleaseAnswer['status']> {
    const { root, parents } = this.registry;
    const node = this.registry.find(request);
    if (node && node.path === undefined) await node.entered.catch(ignored);
    if (node) this.registry.remove(node);
    const session = this.connection.current ?? (await this.connection.opened());
    const { parent } = request;
    const stray = async () => {
      const status = await removeStray(session.requests, root, request);
      this.doomed.delete(nodeKey(request));
      return status;
    };
    if (node?.path === undefined || session !== node.session) return stray();
    try {
      await session.requests.remove(node.path);
    } catch (error) {
      unless(Exception.NO_NODE)(error);
      return stray();
    }
    if (isWorn(node.path)) void parents.remove(parent, session.requests);
    return node.tokens ? 'released' : 'taken';
  }

  /** Passes the name on and waits for it again, in one step. */
  async requeue(request: TicketAt, again: string): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const node = this.registry.find(request);
    if (!node?.tokens || node.path === undefined || !(await this.connects(node)))
      return this.requeueAgain(request, again);
    const { session, parent } = node;
    const { requests } = session;
    const next = this.registry.add(session, { ...request, ticket: again });
    this.registry.parents.use(parent, requests)?.catch(ignored);
    this.registry.remove(node);
    const replaced = requests.replace(node.path, next.key, this.dataOf(next)).then((path) => (next.path = path));
    const entered = this.answerTo(
      next,
      Promise.all([replaced, requests.children(parent)]).then(([, children]) => children),
      true,
    );
    next.entered = entered;
    try {
      return await entered;
    } catch (error) {
      if (next.path === undefined) {
        this.registry.remove(next);
        if (isUnanswered(error)) {
          if (this.requeued.size >= MOST_REQUEUED) this.requeued.clear();
          this.requeued.set(node.key, session);
          for (const each of [node, next]) this.doom(each);
        }
      }
      unless(Exception.NO_NODE)(error);
      return { status: 'not-owner', resent: false };
    }
  }

  async mint(request: TicketAt, leastToken: number): Promise<TokenRange | null> {
    const node = this.registry.find(request);
    if (!node?.tokens || node.path === undefined || !(await this.connects(node))) return null;
    try {
      return (node.tokens = await this.tokens.mint(node, leastToken, this.dataOf(node)));
    } catch (error) {
      unless(Exception.NO_NODE)(error);
      this.registry.remove(node);
      return null;
    }
  }

  async renew(request: TicketAt): Promise<RenewAnswer> {
    const node = this.registry.find(request);
    if (!node?.tokens || !(await this.connects(node))) return { status: 'not-owner' };
    node.session.refresh();
    const answer = await this.places.look(node);
    if (answer?.status !== 'granted') return { status: 'not-owner' };
    return { status: 'renewed', remaining: answer.remaining, waiting: answer.waiting ?? 0 };
  }

  /** Writes the label to the nodes of the process, those that there are and those to come; an empty one to none. */
  async label(process: string, label: string): Promise<void> {
    const before = this.labels.get(process) ?? NO_DATA;
    const data = Buffer.from(label);
    if (data.length === 0) this.labels.delete(process);
    else this.labels.set(process, data);
    if (before.equals(data)) return;
    const { current } = this.connection;
    if (!current) return;
    const nodes = this.registry.ofProcess(process).filter(({ session }) => session === current);
    await Promise.allSettled(pathsOf(nodes).map((path) => current.requests.setData(path, data)));
  }

  /** Somebody has removed the node of a ticket. */
  revoke(request: TicketAt): void {
    const node = this.registry.find(request);
    if (node) this.places.revoked(node);
  }

  /** A connection is open again: removes what could not be removed. */
  removeDoomed(): void {
    for (const [key, doomed] of this.doomed) {
      if (this.registry.find(doomed.at)) continue;
      doomed.removing = this.leave(doomed.at).then(() => void this.doomed.delete(key), ignored);
    }
  }

  /** The session has ended. Answers the tickets that owned a name. */
  lose(session: ZooKeeperSession): string[] {
    const lost = this.registry.removeAll(session);
    return lost.filter(({ tokens }) => tokens).map(({ ticket }) => ticket);
  }

  /** Removes all nodes of this process. */
  async close(): Promise<void> {
    const { current } = this.connection;
    if (!current) return;
    const paths = pathsOf(this.registry.removeAll(current));
    await Promise.allSettled(paths.map((path) => current.requests.remove(path)));
  }

  private async enterAgain(node: LockNode, request: TicketAt, waits: boolean): Promise<QueueAnswer> {
    await node.entered;
    const there = (await this.connects(node)) && this.registry.has(node);
    return (there && (await this.places.look(node, waits))) || this.enter(request, waits);
  }

  private async create(node: LockNode, waits: boolean): Promise<QueueAnswer> {
    const { requests } = node.session;
    const { parents } = this.registry;
    for (let attempt = 1; ; attempt++) {
      // All at once: the server carries them out in this order.
      const parent = parents.use(node.parent, requests);
      const key = waits ? node.key : node.key + ONCE;
      const created = requests.createEphemeral(key, this.dataOf(node)).then((path) => (node.path = path));
      try {
        const sent = Promise.all([created, requests.children(node.parent), parent]);
        return await this.answerTo(
          node,
          sent.then(([, children]) => children),
          waits,
        );
      } catch (error) {
        if (node.path !== undefined) throw error;
        if (codeOf(error) !== Exception.NO_NODE || attempt === TRIES) {
          this.registry.remove(node);
          if (isUnanswered(error)) this.doom(node);
          throw error;
        }
        parents.forget(node.parent);
        await parents.createRoot(requests);
      }
    }
  }

  /** An earlier send of the ticket may have created its node: takes that one, unless it belongs to an ended session. */
  private async adopt(node: LockNode, doomed: DoomedNode, waits: boolean): Promise<QueueAnswer> {
    await doomed.removing;
    if (!this.doomed.delete(node.key)) return this.create(node, waits);
    const { session, parent, childPrefix: prefix } = node;
    const { root, parents } = this.registry;
    try {
      const order = await allChildrenOf(session.requests, root, parent);
      const [own, ...others] = order.filter((child) => child.startsWith(prefix));
      const adopts = own !== undefined && doomed.session === session;
      const leaving = own === undefined || adopts ? others : [own, ...others];
      await removeAll(session.requests, parent, leaving);
      if (adopts) node.path = `${parent}/${own}`;
    } catch (error) {
      this.registry.remove(node);
      this.doomed.set(node.key, doomed);
      throw error;
    }
    if (node.path === undefined) return this.create(node, waits);
    parents.use(parent, session.requests)?.catch(ignored);
    return this.answerTo(node, session.requests.children(parent), waits);
  }

  /** The ticket does not own the name: an earlier send may have passed it on. */
  private async requeueAgain(
    request: TicketAt,
    again: string,
  ): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const next = { ...request, ticket: again };
    if (this.registry.find(next)) {
      const answer = await this.beat(next);
      return answer ?? { status: 'not-owner', resent: true };
    }
    const sentIn = this.requeued.get(nodeKey(request));
    if (!sentIn) return { status: 'not-owner', resent: false };
    if (sentIn !== (await this.connection.opened())) return { status: 'not-owner', resent: true };
    await this.leave(request);
    return this.enter(next, true);
  }

  private async answerTo(node: LockNode, sent: Promise<Children>, waits: boolean): Promise<QueueAnswer> {
    const children = await sent;
    const answer = await this.places.answer(node, children, waits);
    if (answer) return answer;
    throw new Error(`Somebody has removed the node ${String(node.path)}`);
  }

  /** The ticket must not wait: removes its node. */
  private withdraw(node: LockNode): void {
    this.leave(node).catch(() => this.doom(node));
  }

  private doom(node: LockNode): void {
    const { parent, name, ticket, session } = node;
    this.doomed.set(node.key, { at: { parent, name, ticket }, session });
  }

  /** Waits for a connection. Answers `false` when the session of the node is over. */
  private async connects({ session }: LockNode): Promise<boolean> {
    return session.connected || (!session.lost && (await this.connection.opened()) === session);
  }

  private dataOf(node: LockNode): Buffer {
    return this.labels.get(processOf(node.ticket)) ?? NO_DATA;
  }
}

interface DoomedNode {
  readonly at: TicketAt;
  readonly session: ZooKeeperSession;
  /** Settles with the request to remove it, if that is under way. */
  removing?: Promise<void>;
}

/** Whether the server may have carried out the request. */
function isUnanswered(error: unknown): boolean {
  return !(error instanceof Exception) || UNANSWERED.includes(error.code);
}

/** The nodes of this process that own a name, wait for it, or are about to be created. */
export class NodeRegistry {
  private readonly nodes = new Map<string, LockNode>();

  constructor(
    readonly root: string,
    readonly parents: ParentNodes,
  ) {}

  find(at: TicketAt): LockNode | undefined {
    return this.nodes.get(nodeKey(at));
  }

  add(session: ZooKeeperSession, at: TicketAt): LockNode {
    const node = new LockNode(session, at);
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

/** In order of arrival; none where nobody wants the name. */
export async function childrenOf(requests: ZooKeeperRequests, parent: string): Promise<readonly string[]> {
  try {
    return inOrder((await requests.children(parent)).names);
  } catch (error) {
    if (codeOf(error) !== Exception.NO_NODE) throw error;
    return [];
  }
}

/**
 * Removes the node of a ticket whose path this process does not know: the answer to its creation was lost, or its
 * session was. The ticket in the name of the node finds it.
 */
async function removeStray(
  requests: ZooKeeperRequests,
  root: string,
  { parent, ticket }: TicketAt,
): Promise<ReleaseAnswer['status']> {
  const order = await allChildrenOf(requests, root, parent);
  const strays = order.filter((child) => child.startsWith(childPrefix(ticket)));
  await removeAll(requests, parent, strays);
  if (strays.length > 0 && strays[0] === order[0]) return 'released';
  return order.length === strays.length ? 'gone' : 'taken';
}

/** In order, also those that a request has created that went to another server, whose writes this one may not have. */
async function allChildrenOf(requests: ZooKeeperRequests, root: string, parent: string): Promise<readonly string[]> {
  const [, order] = await Promise.all([requests.barrier(root), childrenOf(requests, parent)]);
  return order;
}

async function removeAll(requests: ZooKeeperRequests, parent: string, children: readonly string[]): Promise<void> {
  await Promise.all(children.map((child) => requests.remove(`${parent}/${child}`).catch(unless(Exception.NO_NODE))));
}

function pathsOf(nodes: readonly LockNode[]): string[] {
  return nodes.flatMap(({ path = [] }) => path);
}
