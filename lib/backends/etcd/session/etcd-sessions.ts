import type { EtcdClient } from '../client/etcd-client.js';
import { EtcdSession } from './etcd-session.js';

/** Calls the tickets of a session that has ended. */
export type LossListener = (tickets: readonly string[], why: Error) => void;

/** The session of this process, opened at first use and again after its end, and the tickets that it carries. */
export class EtcdSessions {
  /** The tickets that this process may own or wait with. */
  readonly tickets = new Set<string>();
  /** How many releases and requeues of a ticket are under way: etcd may still name it as the owner. */
  private readonly ending = new Map<string, number>();
  private session: EtcdSession | undefined;
  private opening: Promise<EtcdSession> | undefined;
  private closed = false;
  private readonly listeners = new Set<LossListener>();

  constructor(
    private readonly client: EtcdClient,
    private readonly seconds: number,
    /** Called before a session is used for the first time. */
    private readonly prepare: () => Promise<void>,
  ) {}

  /** The session that lives, if there is one. */
  get present(): EtcdSession | undefined {
    return this.session?.isOver === false ? this.session : undefined;
  }

  /** Whether this process owns with the ticket, waits with it, or gives it back just now. */
  knows(ticket: string): boolean {
    return this.tickets.has(ticket) || this.ending.has(ticket);
  }

  /** The ticket is given back by `request`. */
  async end<T>(ticket: string, request: () => Promise<T>): Promise<T> {
    this.tickets.delete(ticket);
    this.ending.set(ticket, (this.ending.get(ticket) ?? 0) + 1);
    try {
      return await request();
    } finally {
      const others = (this.ending.get(ticket) ?? 1) - 1;
      if (others > 0) this.ending.set(ticket, others);
      else this.ending.delete(ticket);
    }
  }

  /** @throws what the client throws */
  current(): EtcdSession | Promise<EtcdSession> {
    const { present } = this;
    if (present) return present;
    // Not opened before this call returns: those who learn then that the last session has ended call it, too.
    return (this.opening ??= Promise.resolve()
      .then(() => this.open())
      .finally(() => (this.opening = undefined)));
  }

  /**
   * Milliseconds for which etcd keeps at least what was written with this lease. 0 where it is not that of the present
   * session: etcd may keep an earlier one for a moment, but nobody renews it.
   */
  remaining(lease: string | undefined): number {
    return this.session?.lease === lease ? (this.session?.remaining() ?? 0) : 0;
  }

  onLost(listener: LossListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Gives everything back at once. */
  async close(): Promise<void> {
    this.closed = true;
    this.tickets.clear();
    await this.session?.revoke();
  }

  private async open(): Promise<EtcdSession> {
    // Its end may not have been noticed yet: no ticket may pass from one session to the next.
    this.session?.end(new Error('the lease of etcd could not be renewed in time'));
    await this.prepare();
    const session = await EtcdSession.open(this.client, this.seconds, (why) => this.lose(why));
    if (!this.closed) return (this.session = session);
    await session.revoke();
    throw new Error('The backend is closed');
  }

  private lose(why: Error): void {
    const tickets = [...this.tickets];
    this.tickets.clear();
    if (tickets.length > 0) for (const listener of this.listeners) listener(tickets, why);
  }
}
