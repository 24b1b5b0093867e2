import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { Notice } from '../../../contracts/start-request.js';
import { remedyOf } from '../connection/diagnosis.js';
import { serverOf } from '../connection/server-address.js';
import type { ScriptRunner } from '../scripting/script-runner.js';

/** How often (ms) the subscriber sends itself a message. A broken connection is noticed within twice this time. */
const HEARTBEAT = 1_000;
/** After how many lost heartbeats a connection that never delivered one is replaced. */
const PATIENCE = 10;
/** For how long (ms) after a warning about a loss further losses are not reported. */
const QUIET = 10_000;

/** What Redis sends on a channel; on `__redis__:invalidate` a list of keys, or `null` for all keys. */
export type ChannelMessage = Buffer | readonly Buffer[] | null;

/** What the messages are for, in words for the log. */
export interface SubscriberPurpose {
  /** As in "messages of the locks". */
  readonly whose: string;
  /** What happens while no message arrives. */
  readonly without: string;
  readonly report: (notice: Notice) => void;
}

/**
 * A connection for messages that is checked end to end.
 *
 * A connection can die without an error. Each subscriber therefore sends itself a heartbeat on a channel of its own,
 * through the client for commands, and counts as disconnected while the heartbeat does not arrive.
 */
export abstract class WatchedSubscriber {
  private readonly own: string;
  private subscriber: Redis | undefined;
  private connected = false;
  private closed = false;
  private unheard = 0;
  private timer: NodeJS.Timeout | undefined;
  private lossToldAt = -Infinity;
  private refusalTold = false;
  private told = false;
  private readonly onNode = () => this.start();
  /** The connection for commands broke, perhaps by a failover: the address may now lead to another server. */
  private readonly onClientClose = () => this.subscriber?.stream?.destroy();

  /** `channel` is what the channel of the heartbeats begins with. */
  protected constructor(
    protected readonly scripts: ScriptRunner,
    channel: string,
    private readonly purpose: SubscriberPurpose,
  ) {
    this.own = `${channel}:${randomUUID()}`;
  }

  protected get isConnected(): boolean {
    return this.connected;
  }

  /** `undefined` while there is no connection. */
  protected get connection(): Redis | undefined {
    return this.subscriber;
  }

  close(): void {
    clearInterval(this.timer);
    // The client may be the user's, and outlive this subscriber.
    this.scripts.client.off('+node', this.onNode);
    this.scripts.client.off('close', this.onClientClose);
    this.closed = true;
    this.connected = false;
    this.subscriber?.disconnect();
  }

  /** Connects, unless that was done before, and connects again whenever the connection ends. */
  protected open(): void {
    if (this.timer) return;
    // After a pause of the process, a heartbeat may have arrived and not been read yet.
    this.timer = setInterval(() => setImmediate(() => this.check()), HEARTBEAT).unref();
    const { client } = this.scripts;
    client.on('close', this.onClientClose);
    this.start();
    if (!this.subscriber) client.once('+node', this.onNode);
  }

  private start(): void {
    if (this.subscriber || this.closed) return;
    const subscriber = this.connect();
    if (!subscriber) return;
    this.subscriber = subscriber;
    subscriber.on('messageBuffer', (channel: Buffer, message: ChannelMessage) => {
      const name = channel.toString();
      if (name === this.own) this.heard();
      else this.deliver(message, name);
    });
    subscriber.on('ready', () => {
      this.subscribe(subscriber, this.own).then(
        () => this.beat(),
        (error: Error) => this.onRefused(error),
      );
    });
    subscriber.on('close', () => this.lost());
    subscriber.on('end', () => (this.subscriber = undefined));
  }

  /** Makes the connection; `undefined` while no node of a Cluster is known. */
  protected abstract connect(): Redis | undefined;
  /** Called for each new connection. Subscribe to `own` last: its heartbeat tells that the other channels are open. */
  protected abstract subscribe(subscriber: Redis, own: string): Promise<unknown>;
  protected abstract deliver(message: ChannelMessage, channel: string): void;
  protected abstract onConnected(): void;
  protected abstract onDisconnected(): void;

  /** Called with the error of `subscribe` or of a heartbeat, from Redis or from a broken connection. */
  protected onRefused(error: Error): void {
    if (error.name !== 'ReplyError' || this.refusalTold) return;
    this.refusalTold = true;
    const remedy = remedyOf(error);
    this.warn(`are refused: ${error.message}${remedy === undefined ? '' : `; ${remedy}`}`);
  }

  private check(): void {
    if (this.closed) return;
    if (this.unheard >= (this.connected ? 1 : PATIENCE)) {
      if (!this.connected && !this.told && !this.refusalTold) this.tellLoss('do not arrive');
      this.lost();
      this.unheard = 0;
      this.subscriber?.stream?.destroy();
    }
    this.start();
    this.beat();
  }

  private beat(): void {
    this.unheard += 1;
    const { status } = this.scripts.client;
    // Without a connection, the client would queue one heartbeat after the other.
    if (status !== 'ready' && status !== 'wait') return;
    this.scripts.command((client) => client.publish(this.own, '')).catch((error: Error) => this.onRefused(error));
  }

  private heard(): void {
    this.unheard = 0;
    if (this.connected) return;
    this.connected = true;
    if (this.told || this.refusalTold) {
      this.told = false;
      this.refusalTold = false;
      this.purpose.report({ level: 'log', message: `${this.subject} arrive again` });
    }
    this.onConnected();
  }

  private lost(): void {
    if (!this.connected) return;
    this.connected = false;
    this.tellLoss('do not arrive: their connection is lost; connecting again');
    this.onDisconnected();
  }

  private tellLoss(how: string): void {
    if (performance.now() - this.lossToldAt < QUIET) return;
    this.lossToldAt = performance.now();
    this.told = true;
    this.warn(how);
  }

  private warn(how: string): void {
    this.purpose.report({ level: 'warn', message: `${this.subject} ${how}. Until they do, ${this.purpose.without}` });
  }

  private get subject(): string {
    return `${serverOf(this.scripts.client)}: messages of ${this.purpose.whose}`;
  }
}
