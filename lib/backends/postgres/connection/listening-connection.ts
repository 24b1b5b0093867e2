import { randomUUID } from 'node:crypto';
import { Socket } from 'node:net';
import type { Client, PoolConfig } from 'pg';
import { backoff, onceRead } from '../../../timing/clock.js';
import { type PostgresLink, statementOf } from './postgres-link.js';

/** What uses the messages. */
interface MessageListener {
  /** The channels, now and after each reconnect. */
  channels(): Iterable<string>;
  onMessage(channel: string, payload: string): void;
  /** Messages arrive from now on. */
  onConnected(): void;
  /** Messages do not arrive any more. */
  onDisconnected(): void;
}

/** How often (ms) the connection is checked. A broken one is noticed within twice this time. */
const HEARTBEAT = 1_000;
/** How long (ms) a message that was sent may take to arrive: whether any arrives at all. */
export const PROBE_PATIENCE = 3_000;
/** The longest pause (ms) before the next attempt to connect. */
const LONGEST_PAUSE = 10_000;

const NOTIFY = statementOf('notify', 'SELECT pg_notify($1, $2)');

/** Sends a message to `channel`. Resolves to whether `arrives` resolved soon after: the server may be busy before. */
export async function arrivesAfter(link: PostgresLink, channel: string, arrives: Promise<void>): Promise<boolean> {
  await link.query(NOTIFY, [channel, '']);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => onceRead(() => resolve(false)), PROBE_PATIENCE).unref();
  });
  try {
    return await Promise.race([arrives.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * A connection that listens, made from the options of the pool and never one of it. Reconnects whenever it ends, and
 * sends itself a message to see whether any arrives: through a pooler in transaction mode none does.
 */
export class ListeningConnection {
  private client: Client | undefined;
  private connected = false;
  private connecting: Promise<void> | undefined;
  private readonly probe = `nest_redis_lock:probe:${randomUUID().slice(0, 18)}`;
  private probed: (() => void) | undefined;
  private timer: NodeJS.Timeout | undefined;
  private answered = true;
  private failures = 0;
  private retryAt = 0;
  private reported = false;

  constructor(
    private readonly link: PostgresLink,
    private readonly options: PoolConfig | undefined,
    private readonly listener: MessageListener,
  ) {}

  /** Whether messages arrive, as far as it is known. */
  get isConnected(): boolean {
    return this.connected;
  }

  /** Resolves when it listens; rejects when it cannot, and goes on trying. */
  open(): Promise<void> {
    this.timer ??= setInterval(() => this.check(), HEARTBEAT).unref();
    if (this.connected) return Promise.resolve();
    if (performance.now() >= this.retryAt) return this.connect();
    return Promise.reject(new Error(`${this.link.server}: there is no connection for messages`));
  }

  /** Adds a channel to those of an open connection. */
  async listen(channel: string): Promise<void> {
    await this.client?.query(`LISTEN ${quoted(channel)}`);
  }

  unlisten(channel: string): void {
    this.client?.query(`UNLISTEN ${quoted(channel)}`).catch(() => {});
  }

  close(): void {
    clearInterval(this.timer);
    this.timer = undefined;
    const { client } = this;
    this.client = undefined;
    this.connected = false;
    void client?.end().catch(() => {});
  }

  private connect(): Promise<void> {
    return (this.connecting ??= this.tryToConnect().finally(() => (this.connecting = undefined)));
  }

  private async tryToConnect(): Promise<void> {
    const client = this.link.connection(this.options);
    this.client = client;
    client.on('notification', ({ channel, payload = '' }) => {
      if (channel === this.probe) this.probed?.();
      else this.listener.onMessage(channel, payload);
    });
    client.on('end', () => this.lost(client));
    try {
      await client.connect();
      const { stream } = client.connection;
      if (stream instanceof Socket) stream.unref();
      await client.query(`LISTEN ${quoted(this.probe)}`);
      await this.sendProbe(client);
      // Others may be added meanwhile.
      const listening = new Set<string>();
      for (let channel = this.beyond(listening); channel !== undefined; channel = this.beyond(listening)) {
        listening.add(channel);
        await client.query(`LISTEN ${quoted(channel)}`);
      }
    } catch (error) {
      this.drop(client);
      this.retryAt = performance.now() + backoff(this.failures++, HEARTBEAT, LONGEST_PAUSE);
      throw error;
    }
    this.succeeded();
  }

  /** A channel that is not among `listening`. */
  private beyond(listening: ReadonlySet<string>): string | undefined {
    for (const channel of this.listener.channels()) if (!listening.has(channel)) return channel;
    return undefined;
  }

  private async sendProbe(client: Client): Promise<void> {
    const arrives = new Promise<void>((resolve) => (this.probed = resolve));
    const arrived = await arrivesAfter(this.link, this.probe, arrives);
    if (this.client !== client) throw new Error('The connection for messages was closed');
    if (arrived) return;
    this.report(
      'do not arrive: is there a pooler in transaction mode? Give a direct connection as "messages". Until then ' +
        'waiters ask again and again',
    );
    throw new Error(`${this.link.server}: messages do not arrive`);
  }

  private succeeded(): void {
    if (this.reported)
      this.link.listeners.report({ level: 'log', message: `${this.link.server}: messages of the locks arrive again` });
    this.reported = false;
    this.failures = 0;
    this.answered = true;
    this.connected = true;
    this.link.watch.tell();
    this.listener.onConnected();
  }

  private check(): void {
    const { client } = this;
    if (!this.connected || !client) {
      if (performance.now() >= this.retryAt) void this.connect().catch(() => {});
      return;
    }
    if (!this.answered) return this.lost(client);
    this.answered = false;
    client.query('SELECT 1').then(
      () => (this.answered = true),
      () => this.lost(client),
    );
  }

  private lost(client: Client): void {
    if (this.client !== client || !this.connected) return;
    this.report('do not arrive: their connection is lost; reconnecting. Until they do, waiters get their lock later');
    this.drop(client);
    this.listener.onDisconnected();
    this.link.watch.tell();
    this.retryAt = 0;
  }

  /** Closes a connection that may not answer any more. */
  private drop(client: Client): void {
    if (this.client === client) {
      this.client = undefined;
      this.connected = false;
    }
    client.connection.stream.destroy();
  }

  private report(what: string): void {
    if (!this.reported)
      this.link.listeners.report({ level: 'warn', message: `${this.link.server}: messages of the locks ${what}` });
    this.reported = true;
  }
}

function quoted(channel: string): string {
  return `"${channel.replaceAll('"', '""')}"`;
}
