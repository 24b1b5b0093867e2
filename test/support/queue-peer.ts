import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import { type LockBackend, redis } from 'nest-redis-lock';
import type {
  Busy,
  Granted,
  LockQueue,
  QueueAnswer,
  QueueMessage,
  ReleaseAnswer,
  RenewAnswer,
  TokenRange,
} from 'nest-redis-lock/backend';
import { eventually } from './eventually.js';
import { openBackend, type OpenBackend } from './open-backend.js';

export type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

export const TTL = 30_000;
export const CLAIM = 5_000;

/**
 * A process that takes part in the queue of a backend, one command at a time, as a test tells it: it may repeat itself,
 * come late, or stay silent.
 */
export class QueuePeer {
  readonly process = randomUUID();
  readonly messages: QueueMessage[] = [];
  readonly backend: OpenBackend;
  private readonly queue: LockQueue;
  private readonly readers = new Set<string>();
  private tickets = 0;

  constructor(
    store: Redis | LockBackend,
    private readonly prefix?: string,
  ) {
    const { process } = this;
    const message = (each: QueueMessage) => void this.messages.push(each);
    this.backend = openBackend('traits' in store ? store : redis(store), { prefix, process, message });
    this.queue = this.backend.queue as LockQueue;
  }

  async listen(): Promise<this> {
    await this.queue.listen();
    return this;
  }

  ticket(): string {
    this.tickets += 1;
    return `${this.process}:${this.tickets}`;
  }

  /** A ticket that asks to read. */
  readTicket(): string {
    const ticket = this.ticket();
    this.readers.add(ticket);
    return ticket;
  }

  /** Asks for the name, and waits in the queue. */
  async enqueue(name: string, ticket: string, { ttl = TTL, claim = CLAIM } = {}): Promise<QueueAnswer> {
    return this.queue.enqueue({ ...this.asking(name, ticket), ttl, claim });
  }

  /** Asks once. */
  async tryOnce(name: string, ticket: string, ttl = TTL): Promise<QueueAnswer> {
    return this.queue.enqueue({ ...this.asking(name, ticket), ttl });
  }

  async beat(name: string, ticket: string, pause?: number): Promise<QueueAnswer | { status: 'gone' }> {
    return this.queue.beat({ ...this.asking(name, ticket), ttl: TTL, pause });
  }

  async requeue(name: string, ticket: string, again: string, claim = CLAIM) {
    return this.queue.requeue({ name, ticket, again, claim });
  }

  async mint(name: string, ticket: string, leastToken = 0): Promise<TokenRange | null> {
    return this.backend.mint({ name, ticket, leastToken });
  }

  async release(name: string, ticket: string): Promise<ReleaseAnswer> {
    return this.backend.release({ name, ticket });
  }

  async renew(name: string, ticket: string, ttl: number): Promise<RenewAnswer> {
    const [answer] = this.backend.renew([{ name, ticket, ttl }]);
    return answer as Promise<RenewAnswer>;
  }

  /** The message that grants the ticket, once it is there. */
  granted(ticket: string): Promise<GrantMessage> {
    return eventually(() => this.grants(ticket)[0]);
  }

  grants(ticket: string): GrantMessage[] {
    return this.messages.filter(
      (message): message is GrantMessage => message.kind === 'grant' && message.ticket === ticket,
    );
  }

  wanted(ticket: string): QueueMessage[] {
    return this.messages.filter((message) => message.kind === 'wanted' && message.ticket === ticket);
  }

  private asking(name: string, ticket: string) {
    return { name, ticket, mode: this.readers.has(ticket) ? 'read' : 'write' } as const;
  }

  /** Messages that were published before now have come when this resolves. */
  async heardAll(client: Redis): Promise<void> {
    const channel = `${this.prefix === undefined ? '' : `${this.prefix}:`}lock:process:${this.process}`;
    const mark = randomUUID();
    await client.publish(channel, `revoked ${mark}`);
    await eventually(() => this.messages.some(({ ticket }) => ticket === mark));
  }
}

export function asGranted(answer: QueueAnswer | { status: 'gone' | 'not-owner' }): Granted {
  if (answer.status !== 'granted') throw new Error(`Not granted: ${JSON.stringify(answer)}`);
  return answer;
}

export function asBusy(answer: QueueAnswer | { status: 'gone' | 'not-owner' }): Busy {
  if (answer.status !== 'busy') throw new Error(`Not busy: ${JSON.stringify(answer)}`);
  return answer;
}
