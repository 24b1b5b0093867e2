import { Exception } from 'node-zookeeper-client';
import type { Granted, ModuleContext, QueueAnswer, QueueMessage } from '../../contracts/lock-backend.js';
import { processOf } from '../../contracts/lock-requests.js';
import { LinkedList, PlaceOf } from '../../timing/brief-collections.js';
import { type LockNode, type FencingTokens, ticketOf, inOrder, waitsAt } from './lock-node.js';
import type { NodeRegistry } from './lock-nodes.js';
import { unless, type Children } from './zookeeper-requests.js';

/** Turns the events of watches into messages for the module whose ticket they concern. */
export class QueueMessages {
  /** Those that listen, by their process. */
  private readonly modules = new Map<string, ModuleContext>();

  listen(module: ModuleContext): void {
    this.modules.set(module.process, module);
  }

  unlisten({ process }: ModuleContext): void {
    this.modules.delete(process);
  }

  granted(node: LockNode, { tokens, remaining, waiting = 0 }: Granted): void {
    this.send(node, { kind: 'grant', ticket: node.ticket, name: node.name, tokens, claim: remaining, waiting });
  }

  wanted(node: LockNode): void {
    this.send(node, { kind: 'wanted', ticket: node.ticket, name: node.name });
  }

  revoked(node: LockNode): void {
    this.send(node, { kind: 'revoked', ticket: node.ticket });
  }

  /** A connection is open again: events may have been missed. */
  reconnected(): void {
    for (const module of this.modules.values()) module.reconnected();
  }

  /** The answer for the ticket, which is to ask often where no message reaches its process. */
  reachable(ticket: string, answer: QueueAnswer): QueueAnswer {
    if (answer.status === 'granted' || this.modules.has(processOf(ticket))) return answer;
    return { ...answer, unreached: true };
  }

  private send(node: LockNode, message: QueueMessage): void {
    this.modules.get(node.process)?.message(message);
  }
}

/** From this place in the queue on, a turn cannot come soon. */
const FAR = 8;

/**
 * Finds the place of a node among all nodes of its name. The first one owns the name; each other one watches the node
 * before it.
 */
export class QueuePlaces {
  private readonly holders = new HolderWatches((node) => {
    this.watchHolder(node).catch(() => {});
  });

  constructor(
    private readonly registry: NodeRegistry,
    private readonly tokens: FencingTokens,
    /** What happens to the nodes of this process without a request for it. */
    private readonly messages: QueueMessages,
  ) {}

  /** `undefined` when the node is gone. With `waits`, an event reports its turn to a node that is not the first. */
  async look(node: LockNode, waits = true): Promise<QueueAnswer | undefined> {
    try {
      return await this.answer(node, await node.session.requests.children(node.parent), waits);
    } catch (error) {
      unless(Exception.NO_NODE)(error);
      this.registry.remove(node);
      return undefined;
    }
  }

  async answer(node: LockNode, children: Children, waits: boolean): Promise<QueueAnswer | undefined> {
    const { session, parent, childPrefix } = node;
    for (let { names } = children; ; { names } = children) {
      const order = inOrder(names);
      const own = node.path?.slice(node.path.lastIndexOf('/') + 1);
      const place = order.findIndex((child) => (own === undefined ? child.startsWith(childPrefix) : child === own));
      if (place === 0) return this.grant(node, children, order.slice(1).filter(waitsAt).length);
      if (place === -1) {
        this.registry.remove(node);
        return undefined;
      }
      const placed = !waits || (await node.watch(`${parent}/${order[place - 1]}`, () => void this.wake(node)));
      const owner = ticketOf(order[0] as string);
      if (placed) return { status: 'busy', owner, remaining: session.timeout, first: place === 1, far: place > FAR };
      children = await session.requests.children(parent);
    }
  }

  /** Somebody has removed the node. */
  revoked(node: LockNode): void {
    if (!this.registry.has(node)) return;
    this.registry.remove(node);
    if (node.tokens) this.messages.revoked(node);
  }

  private async grant(node: LockNode, children: Children, waiting: number): Promise<Granted> {
    const { session, parent } = node;
    const tokens = node.tokens ?? (await this.tokens.ofGrant(session.requests, parent, children));
    if (!node.tokens) {
      node.tokens = tokens;
      node.grantedAt = performance.now();
      node.unwatch();
      if (this.registry.has(node)) this.holders.add(node);
    }
    return { status: 'granted', tokens: node.tokens, remaining: session.left(), waiting };
  }

  /** The node before it is gone. */
  private async wake(node: LockNode): Promise<void> {
    const waits = () => this.registry.has(node) && !node.tokens;
    if (!waits()) return;
    try {
      const children = await node.session.requests.children(node.parent);
      if (!waits()) return;
      const answer = await this.answer(node, children, true);
      if (answer?.status === 'granted' && this.registry.has(node)) this.messages.granted(node, answer);
    } catch {
      // Its next heartbeat asks again.
    }
  }

  /** Watches whether others wait for the name, and whether the node is removed by force. */
  private async watchHolder(node: LockNode): Promise<void> {
    const there = node.watch(node.path as string, () => this.revoked(node));
    await Promise.all([there, this.watchWaiters(node)]);
    if (!(await there)) this.revoked(node);
  }

  /** Tells once that others wait. Those that ask once come and go. */
  private async watchWaiters(node: LockNode): Promise<void> {
    const { session, parent, path } = node;
    let told = false;
    const look = async () => {
      const { names } = await session.requests.children(parent, () => {
        if (!told && this.registry.has(node)) look().catch(() => {});
      });
      told = names.some((child) => waitsAt(child) && path !== `${parent}/${child}`);
      if (told && this.registry.has(node)) this.messages.wanted(node);
    };
    await look();
  }
}

/** After how long (ms) a holder is watched: most locks are released sooner, and cost nothing. */
const PATIENCE = 25;

/** Finds the nodes that hold their name for longer than a moment. */
class HolderWatches {
  private readonly recent = new LinkedList<PlaceOf<LockNode>>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly watch: (node: LockNode) => void) {}

  add(node: LockNode): void {
    node.recent = this.recent.push(new PlaceOf(node));
    this.timer ??= setTimeout(() => this.look(), PATIENCE).unref();
  }

  private look(): void {
    this.timer = undefined;
    const since = performance.now() - PATIENCE;
    for (let place = this.recent.first; place && place.value.grantedAt <= since; place = this.recent.first) {
      place.leave();
      this.watch(place.value);
    }
    if (this.recent.first) this.timer = setTimeout(() => this.look(), PATIENCE).unref();
  }
}
