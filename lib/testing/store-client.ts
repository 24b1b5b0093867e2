import { randomUUID } from 'node:crypto';
import type {
  AcquireAnswer,
  LockBackend,
  LockQueue,
  LockStore,
  Pending,
  QueueAnswer,
  QueueMessage,
  ReleaseAnswer,
  RenewAnswer,
  TokenRange,
} from '../contracts/lock-backend.js';

/** How long (ms) a service waits for an answer of the store: the machine may be slow. */
export const COMMAND_TIMEOUT = 5_000;

export type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;

/** One process at the store, which sends single requests. */
export class StoreClient {
  readonly process = randomUUID();
  readonly messages: QueueMessage[] = [];
  /** What the store reported. */
  readonly reported: string[] = [];
  readonly store: LockStore;
  /** How often the store said that a connection has opened. */
  connections = 0;
  /** How often it said that messages arrive again. */
  reconnections = 0;
  /** A lease (ms) that lasts for a whole case. */
  readonly long: number;
  /** A lease (ms) that a case waits for, where the store ends leases by `ttl`. */
  readonly short: number;
  private readonly readers = new Set<string>();
  private tickets = 0;

  constructor(
    readonly backend: LockBackend,
    prefix?: string,
  ) {
    this.store = backend.open({
      prefix,
      process: this.process,
      commandTimeout: COMMAND_TIMEOUT,
      report: ({ message }) => this.reported.push(message),
      message: (message) => this.messages.push(message),
      lost: () => {},
      connected: () => (this.connections += 1),
      interrupted: () => {},
      reconnected: () => (this.reconnections += 1),
    });
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
    const { store } = this;
    const asked = { ticket, mode: this.modeOf(ticket), ttl, leastToken };
    if (typeof name === 'string') return promiseOf(store.acquire({ name, ...asked }));
    return promiseOf(store.acquireSeveral!({ names: name, ...asked }));
  }

  renew(name: string, ticket: string, ttl = this.long): Promise<RenewAnswer> {
    const [answer] = this.store.renew([{ name, ticket, ttl }]);
    return promiseOf(answer as Pending<RenewAnswer>);
  }

  release(name: string, ticket: string): Promise<ReleaseAnswer> {
    return promiseOf(this.store.release({ name, ticket }));
  }

  mint(name: string, ticket: string, leastToken = 0): Promise<TokenRange | null> {
    return promiseOf(this.store.mint({ name, ticket, leastToken }));
  }

  /** Asks once, as a ticket that waits for the name. */
  async waitFor(name: string, ticket: string): Promise<AcquireAnswer> {
    const { store, long: ttl } = this;
    const request = { name, ticket, mode: this.modeOf(ticket), ttl };
    if (store.queue) return promiseOf(store.queue.enqueue({ ...request, claim: ttl }));
    return promiseOf(store.acquire({ ...request, waits: true }));
  }

  keep(name: string, ticket: string, rest: number): Promise<ReleaseAnswer> {
    return promiseOf(this.store.keep!({ name, ticket, rest }));
  }

  forceRelease(name: string): Promise<string | readonly string[] | null> {
    return promiseOf(this.store.forceRelease!({ name }));
  }

  async ownerOf(name: string): Promise<string | undefined> {
    return (await promiseOf(this.store.inspect({ name })))?.owner;
  }

  async listen(): Promise<void> {
    await this.store.queue?.listen();
  }

  enqueue(name: string, ticket: string, claim = this.long): Promise<QueueAnswer> {
    const [mode, ttl] = [this.modeOf(ticket), this.long];
    return promiseOf(this.queue.enqueue({ name, ticket, mode, ttl, claim }));
  }

  /** Asks for the name without waiting for it. */
  tryOnce(name: string, ticket: string): Promise<QueueAnswer> {
    return promiseOf(this.queue.enqueue({ name, ticket, mode: this.modeOf(ticket), ttl: this.long }));
  }

  beat(name: string, ticket: string): Promise<QueueAnswer | { status: 'gone' }> {
    return promiseOf(this.queue.beat({ name, ticket, mode: this.modeOf(ticket), ttl: this.long }));
  }

  requeue(
    name: string,
    ticket: string,
    again: string,
  ): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    return promiseOf(this.queue.requeue({ name, ticket, again, claim: this.long }));
  }

  private modeOf(ticket: string): 'read' | 'write' {
    return this.readers.has(ticket) ? 'read' : 'write';
  }

  private get queue(): LockQueue {
    if (!this.store.queue) throw new Error('The store has no queue');
    return this.store.queue;
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
