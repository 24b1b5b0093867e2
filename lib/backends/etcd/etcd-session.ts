import { backoff, currentInstant, elapsedSince, type Instant, onceRead } from '../../timing/clock.js';
import type { Listeners } from '../listeners.js';
import type { EtcdClient } from './etcd-client.js';
import { numberIn, put, type EtcdTransactions } from './etcd-transactions.js';
import { EtcdWatch } from './etcd-watch.js';

/** The session of this process, opened at first use and again after its end, and the tickets that it carries. */
export class EtcdSessions {
  /** The tickets that this process may own or wait with. */
  readonly tickets = new Set<string>();
  /** How many releases and requeues of a ticket are under way: etcd may still name it as the owner. */
  private readonly ending = new Map<string, number>();
  /** The requests under way that ask for a name, by their ticket. */
  private readonly asking = new Map<string, Asking>();
  private session: EtcdSession | undefined;
  private opening: Promise<EtcdSession> | undefined;
  private closed = false;

  constructor(
    private readonly client: EtcdClient,
    private readonly transactions: EtcdTransactions,
    private readonly keyOf: (lease: string) => string,
    private readonly seconds: number,
    /** Told when etcd may have lost what it granted: after a new connection, and after a loss of data. */
    private readonly listeners: Listeners,
    /** Called before a session is used for the first time. */
    private readonly prepare: () => Promise<void>,
  ) {
    transactions.whenLost(async () => this.doubt());
  }

  /** The session that lives, if there is one. */
  get present(): EtcdSession | undefined {
    return this.session?.isOver === false ? this.session : undefined;
  }

  /** Whether this process owns with the ticket, waits with it, or gives it back just now. */
  knows(ticket: string): boolean {
    return this.tickets.has(ticket) || this.ending.has(ticket);
  }

  /**
   * `request` asks for a name under the ticket, and calls `begin` before each send. That throws once the ticket was
   * given back: nobody would give back what a later send takes.
   */
  async ask<T>(ticket: string, request: (begin: () => void) => Promise<T>): Promise<T> {
    const asking = this.asking.get(ticket) ?? { requests: 0, over: false };
    this.asking.set(ticket, asking);
    asking.requests += 1;
    try {
      return await request(() => {
        if (asking.over) throw new Error(`Ticket ${ticket} was given back before it was asked for`);
        this.tickets.add(ticket);
      });
    } finally {
      asking.requests -= 1;
      if (asking.requests === 0 && !asking.over) this.asking.delete(ticket);
    }
  }

  /** The ticket is given back by `request`. */
  async end<T>(ticket: string, request: () => Promise<T>): Promise<T> {
    this.tickets.delete(ticket);
    const asking = this.asking.get(ticket);
    if (asking) asking.over = true;
    this.asking.delete(ticket);
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
    if (!this.closed) {
      session.announce(this.transactions, this.keyOf(session.lease), () => this.doubt());
      return (this.session = session);
    }
    await session.revoke();
    throw new Error('The backend is closed');
  }

  private doubt(): void {
    void this.present?.verify();
    this.listeners.connected();
  }

  private lose(why: Error): void {
    const tickets = [...this.tickets];
    this.tickets.clear();
    this.listeners.lost(tickets, why);
  }
}

interface Asking {
  /** How many there are. */
  requests: number;
  /** Whether the ticket was given back meanwhile. */
  over: boolean;
}

/** How often in its life a lease is renewed. */
const RENEWALS = 3;
/** The share of its life that a lease has left which was renewed just now. */
const FRESH = 0.9;

interface KeepAliveAnswer {
  /** `TTL`: absent when the lease has ended. */
  readonly result: { readonly ID: unknown; readonly TTL?: unknown };
}

/** How long (ms) a lease lives for which `seconds` were asked: etcd lengthens short ones, on which nothing relies. */
function spanOf(ttl: unknown, seconds: number): number {
  return Math.min(numberIn('TTL', ttl), seconds) * 1_000;
}

/** A lease of etcd, kept alive by us: what was written with it is gone when it ends. */
class EtcdSession {
  private timer: NodeJS.Timeout | undefined;
  private renewing: Promise<void> | undefined;
  private failures = 0;
  private ended = false;
  private watch: EtcdWatch | undefined;
  /** Puts the key of the session, until etcd has it. */
  private declare: (() => Promise<unknown>) | undefined;

  private constructor(
    private readonly client: EtcdClient,
    readonly lease: string,
    /** The life that was asked for. */
    private readonly seconds: number,
    private span: number,
    private base: Instant,
    private readonly onEnd: (why: Error) => void,
  ) {
    this.schedule(this.span / RENEWALS);
  }

  /** `onEnd` is called once, unless the session is revoked. @throws what the client throws */
  static async open(client: EtcdClient, seconds: number, onEnd: (why: Error) => void): Promise<EtcdSession> {
    const base = currentInstant();
    const { answer } = await client.call<{ ID: string; TTL: string }>('/v3/lease/grant', { TTL: seconds });
    const span = spanOf(answer.TTL, seconds);
    // A key that is written without a lease, or with lease 0, would stay for ever.
    if (numberIn('lease', answer.ID, 0, Infinity) === 0) throw new Error('etcd granted lease 0, which is none');
    return new EtcdSession(client, answer.ID, seconds, span, base, onEnd);
  }

  /** Milliseconds for which etcd keeps the lease at least; 0 after its end. */
  remaining(): number {
    return this.ended ? 0 : Math.max(0, this.span - elapsedSince(this.base));
  }

  get isOver(): boolean {
    return this.remaining() === 0;
  }

  /**
   * Puts a key with the lease and watches it, so that the end of the lease is known at once. `connected` is called when
   * the watch is open, the first time or again: the lease, or what was written with it, may have gone before.
   */
  announce(transactions: EtcdTransactions, key: string, connected: () => void): void {
    this.watch = new EtcdWatch(this.client, key, {
      onOpen: connected,
      onDelete: () => {
        if (this.ended) return;
        this.end(new Error(`etcd has ended lease ${this.lease}: it was revoked, or its key was deleted`));
        // Nobody renews what is left of it.
        this.revoke().catch(() => {});
      },
    });
    this.watch.open().catch(() => {});
    this.declare = async () => {
      await transactions.run({ compare: [], success: [put(key, '', this.lease)], failure: [] });
      this.declare = undefined;
    };
    this.declare().catch(() => {});
  }

  /** Asks etcd whether the lease lives: no answer to an earlier request counts. */
  async verify(): Promise<void> {
    await this.renewing?.catch(() => {});
    if (!this.ended) await this.renew().catch(() => {});
  }

  /** Renews the lease, unless that was done just now. */
  async refresh(): Promise<void> {
    if (this.remaining() < FRESH * this.span) await this.renew();
  }

  /** The lease has ended, or must not be trusted any more. */
  end(why: Error): void {
    if (this.ended) return;
    this.stop();
    this.onEnd(why);
  }

  /** Ends the lease at etcd, and with it all that was written with it. */
  async revoke(): Promise<void> {
    this.stop();
    await this.client.call('/v3/lease/revoke', { ID: this.lease });
  }

  private stop(): void {
    this.ended = true;
    this.watch?.close();
    clearTimeout(this.timer);
  }

  /** Asks for the full life of the lease from now on. Calls at one time share one request. */
  private renew(): Promise<void> {
    return (this.renewing ??= this.renewOnce().finally(() => (this.renewing = undefined)));
  }

  private async renewOnce(): Promise<void> {
    const sentAt = currentInstant();
    const { answer } = await this.client.call<KeepAliveAnswer>('/v3/lease/keepalive', { ID: this.lease });
    const { ID: lease, TTL } = answer.result;
    if (lease !== this.lease) throw new Error(`etcd answered for lease ${String(lease)}, not for ${this.lease}`);
    const span = spanOf(TTL ?? '0', this.seconds);
    if (span === 0) {
      return this.end(new Error(`etcd has ended lease ${this.lease}: it was not renewed in time, or was revoked`));
    }
    if (this.ended) return;
    this.failures = 0;
    this.span = span;
    this.base = sentAt;
    this.schedule(this.span / RENEWALS);
    this.declare?.().catch(() => {});
  }

  private schedule(delay: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.wake(), Math.min(delay, this.remaining())).unref();
  }

  private wake(): void {
    if (this.isOver) return onceRead(() => this.endIfOver());
    this.renew().catch(() => {
      if (this.ended) return;
      this.schedule(backoff(this.failures));
      this.failures += 1;
    });
    // The request may stay unanswered until the lease has ended.
    this.schedule(this.remaining());
  }

  private endIfOver(): void {
    if (this.isOver) this.end(new Error(`lease ${this.lease} of etcd could not be renewed in time`));
  }
}
