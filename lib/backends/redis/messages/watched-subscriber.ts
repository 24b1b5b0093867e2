import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { Notice } from '../../../contracts/start-request.js';
import { remedyOf } from '../connection/diagnosis.js';
import { serverOf } from '../connection/server-address.js';
import type { RedisClient } from '../redis-client.js';

/** How often (ms) the way of a message is tried out. A way that is broken is noticed within twice this time. */
const HEARTBEAT = 1_000;
/** So many tries may fail on a connection that never worked; then it is made anew. */
const PATIENCE = 10;
/** How long (ms) after a line about a loss the next losses are not told of. */
const QUIET = 10_000;

/** What Redis sends on a channel: to `__redis__:invalidate` keys, or `null`. */
export type ChannelMessage = Buffer | readonly Buffer[] | null;

/** What a subscriber is there for, in lines about it. */
export interface SubscriberPurpose {
  /** As in "messages of the locks". */
  readonly whose: string;
  /** What becomes of it while no message comes. */
  readonly without: string;
  readonly report: (notice: Notice) => void;
}

/**
 * A connection for messages of which it is known whether they arrive.
 *
 * A connection can be dead without a word; so each process sends itself a message on a channel of its own, through
 * `client`, and counts as disconnected while that does not come back.
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
  /**
   * What cut the connection of the commands may have moved the server: a name leads to another one after a failover.
   */
  private readonly onClientClose = () => this.subscriber?.stream?.destroy();

  /** `channel` is what the channel of its own begins with. */
  protected constructor(
    protected readonly client: RedisClient,
    channel: string,
    private readonly purpose: SubscriberPurpose,
  ) {
    this.own = `${channel}:${randomUUID()}`;
  }

  protected get isConnected(): boolean {
    return this.connected;
  }

  /** The connection, where there is one now. */
  protected get connection(): Redis | undefined {
    return this.subscriber;
  }

  close(): void {
    clearInterval(this.timer);
    // The client may be the user's, and outlive this.
    this.client.off('+node', this.onNode);
    this.client.off('close', this.onClientClose);
    this.closed = true;
    this.connected = false;
    this.subscriber?.disconnect();
  }

  /** Connects, if it has not yet, and from then on again whenever that ends. */
  protected open(): void {
    if (this.timer) return;
    // After a pause of the process, what comes back may be there and not read yet.
    this.timer = setInterval(() => setImmediate(() => this.check()), HEARTBEAT).unref();
    this.client.on('close', this.onClientClose);
    this.start();
    if (!this.subscriber) this.client.once('+node', this.onNode);
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

  /** `undefined` where there is nothing to connect to yet. */
  protected abstract connect(): Redis | undefined;
  /** Called for each connection that is made. `own` comes last: it tells that the rest is there. */
  protected abstract subscribe(subscriber: Redis, own: string): Promise<unknown>;
  protected abstract deliver(message: ChannelMessage, channel: string): void;
  protected abstract onConnected(): void;
  protected abstract onDisconnected(): void;

  /** For what Redis, or a connection that broke, answered to `subscribe`, or to a message. */
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
    // A client that waits for a connection would keep it until there is one, with all the others.
    if (this.client.status !== 'ready' && this.client.status !== 'wait') return;
    this.client.publish(this.own, '').catch((error: Error) => this.onRefused(error));
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
    this.tellLoss('do not arrive, as their connection is lost; connecting again');
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
    return `${serverOf(this.client)}: messages of ${this.purpose.whose}`;
  }
}
