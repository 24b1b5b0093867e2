import type {
  BeatRequest,
  EnqueueRequest,
  Granted,
  LockQueue,
  QueueAnswer,
  QueueListener,
  QueueMessage,
  RequeueRequest,
} from '../../contracts/lock-backend.js';
import { processOf, type LockNode } from './nodes/lock-node.js';
import type { LockNodes } from './nodes/lock-nodes.js';
import type { NodeEvents } from './nodes/queue-places.js';

/** The queue of the ZooKeeper backend: a name's nodes in order, and the events of their watches as messages. */
export class ZooKeeperLockQueue implements LockQueue, NodeEvents {
  private readonly listeners = new Map<string, QueueListener>();

  /** @param nodes answers the nodes, which send their events here */
  constructor(private readonly nodes: () => LockNodes) {}

  /** The session is the channel, and opens with the first request. */
  async listen(listener: QueueListener): Promise<void> {
    this.listeners.set(listener.process, listener);
  }

  unlisten({ process }: Pick<QueueListener, 'process'>): void {
    this.listeners.delete(process);
  }

  async enqueue(request: EnqueueRequest): Promise<QueueAnswer> {
    return this.reachable(request.ticket, await this.nodes().enter(request, request.claim !== undefined));
  }

  async beat(request: BeatRequest): Promise<QueueAnswer | { status: 'gone' }> {
    const answer = await this.nodes().beat(request);
    return answer ? this.reachable(request.ticket, answer) : { status: 'gone' };
  }

  async requeue(request: RequeueRequest): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const answer = await this.nodes().requeue(request);
    return answer ? this.reachable(request.again, answer) : { status: 'not-owner', resent: false };
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
    for (const listener of this.listeners.values()) listener.onReconnect();
  }

  private send(node: LockNode, message: QueueMessage): void {
    this.listeners.get(node.process)?.onMessage(message);
  }

  private reachable(ticket: string, answer: QueueAnswer): QueueAnswer {
    if (answer.status === 'granted' || this.listeners.has(processOf(ticket))) return answer;
    return { ...answer, unreached: true };
  }
}
