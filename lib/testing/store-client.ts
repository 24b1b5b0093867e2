import { randomUUID } from 'node:crypto';
import type {
  AcquireAnswer,
  LockBackend,
  LockQueue,
  Pending,
  QueueAnswer,
  QueueMessage,
  ReleaseAnswer,
  RenewAnswer,
  TokenRange,
} from '../contracts/lock-backend.js';

export type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/** One process at the store, which sends single requests. */
export class StoreClient {
  readonly process = randomUUID();
  readonly messages: QueueMessage[] = [];
  /** A lease (ms) that lasts for a whole case. */
  readonly long: number;
  /** A lease (ms) that a case waits for, where the store ends leases by `ttl`. */
  readonly short: number;
  private readonly readers = new Set<string>();
  private tickets = 0;

  constructor(
    readonly backend: LockBackend,
    private readonly prefix?: string,
  ) {
    this.long = Math.max(60_000, backend.traits.leastLease);
    this.short = Math.max(1_500, backend.traits.leastLease);
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

  acquire(
    name: string | readonly string[],
    ticket: string,
    ttl = this.long,
    leastToken?: number,
  ): Promise<AcquireAnswer> {
    const { prefix, backend } = this;
    const asked = { prefix, ticket, mode: this.modeOf(ticket), ttl, leastToken };
    if (typeof name === 'string') return promiseOf(backend.acquire({ name, ...asked }));
    return promiseOf(backend.acquireSeveral!({ names: name, ...asked }));
  }

  renew(name: string, ticket: string, ttl = this.long): Promise<RenewAnswer> {
    const [answer] = this.backend.renew([{ prefix: this.prefix, name, ticket, ttl }]);
    return promiseOf(answer as Pending<RenewAnswer>);
  }

  release(name: string, ticket: string): Promise<ReleaseAnswer> {
    return promiseOf(this.backend.release({ prefix: this.prefix, name, ticket }));
  }

  mint(name: string, ticket: string, leastToken = 0): Promise<TokenRange | null> {
    return promiseOf(this.backend.mint({ prefix: this.prefix, name, ticket, leastToken }));
  }

  async ownerOf(name: string): Promise<string | undefined> {
    return (await promiseOf(this.backend.inspect({ prefix: this.prefix, name })))?.owner;
  }

  async listen(): Promise<void> {
    await this.backend.queue?.listen({
      prefix: this.prefix,
      process: this.process,
      onMessage: (message) => this.messages.push(message),
      onReconnect: () => {},
    });
  }

  enqueue(name: string, ticket: string, claim = this.long): Promise<QueueAnswer> {
    const [mode, ttl] = [this.modeOf(ticket), this.long];
    return promiseOf(this.queue.enqueue({ prefix: this.prefix, name, ticket, mode, ttl, claim }));
  }

  /** Asks for the name without waiting for it. */
  tryOnce(name: string, ticket: string): Promise<QueueAnswer> {
    return promiseOf(
      this.queue.enqueue({ prefix: this.prefix, name, ticket, mode: this.modeOf(ticket), ttl: this.long }),
    );
  }

  beat(name: string, ticket: string): Promise<QueueAnswer | { status: 'gone' }> {
    return promiseOf(this.queue.beat({ prefix: this.prefix, name, ticket, mode: this.modeOf(ticket), ttl: this.long }));
  }

  requeue(
    name: string,
    ticket: string,
    again: string,
  ): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    return promiseOf(this.queue.requeue({ prefix: this.prefix, name, ticket, again, claim: this.long }));
  }

  private modeOf(ticket: string): 'read' | 'write' {
    return this.readers.has(ticket) ? 'read' : 'write';
  }

  private get queue(): LockQueue {
    if (!this.backend.queue) throw new Error('The backend has no queue');
    return this.backend.queue;
  }

  /** Whether a message granted the name to this ticket. */
  isGranted(ticket: string): boolean {
    return this.grantOf(ticket) !== undefined;
  }

  /** The message that granted the name to this ticket. */
  grantOf(ticket: string): GrantMessage | undefined {
    return this.messages.find((message) => message.kind === 'grant' && message.ticket === ticket) as
      GrantMessage | undefined;
  }
}

export function promiseOf<T>(pending: Pending<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    pending.then(resolve, reject);
  });
}
