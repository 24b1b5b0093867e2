import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { RedisClient } from './redis-client.js';

/** How often (ms) the way of a message is tried out. A way that is broken is noticed within twice this time. */
const HEARTBEAT = 1_000;
/** So many tries may fail on a connection that never worked; then it is made anew. */
const PATIENCE = 10;

/** What Redis sends on a channel: to `__redis__:invalidate` keys, or `null`. */
export type ChannelMessage = Buffer | readonly Buffer[] | null;

/**
 * A connection for messages of which it is known whether they arrive.
 *
 * A connection can be dead without a word; so each process sends itself a message on a channel of its own, through `client`, and
 * counts as disconnected while that does not come back.
 */
export abstract class WatchedSubscriber {
  private readonly own: string;
  private subscriber: Redis | undefined;
  private connected = false;
  private closed = false;
  private unheard = 0;
  private timer: NodeJS.Timeout | undefined;
  private readonly onNode = () => this.start();

  /** `channel` is what the channel of its own begins with. */
  protected constructor(
    protected readonly client: RedisClient,
    channel: string,
  ) {
    this.own = `${channel}:${randomUUID()}`;
  }

  protected get isConnected(): boolean {
    return this.connected;
  }

  close(): void {
    clearInterval(this.timer);
    // The client may be the user's, and outlive this.
    this.client.off('+node', this.onNode);
    this.closed = true;
    this.connected = false;
    this.subscriber?.disconnect();
  }

  /** Connects, if it has not yet, and from then on again whenever that ends. */
  protected open(): void {
    if (this.timer) return;
    // After a pause of the process, what comes back may be there and not read yet.
    this.timer = setInterval(() => setImmediate(() => this.check()), HEARTBEAT).unref();
    this.start();
    if (!this.subscriber) this.client.once('+node', this.onNode);
  }

  private start(): void {
    if (this.subscriber || this.closed) return;
    const subscriber = this.connect();
    if (!subscriber) return;
    this.subscriber = subscriber;
    subscriber.on('messageBuffer', (channel: Buffer, message: ChannelMessage) => {
      if (channel.toString() === this.own) this.heard();
      else this.deliver(message);
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
  protected abstract deliver(message: ChannelMessage): void;
  protected abstract onConnected(): void;
  protected abstract onDisconnected(): void;
  protected onRefused(_error: Error): void {}

  private check(): void {
    if (this.closed) return;
    if (this.unheard >= (this.connected ? 1 : PATIENCE)) {
      this.lost();
      this.unheard = 0;
      this.subscriber?.stream?.destroy();
    }
    this.start();
    this.beat();
  }

  private beat(): void {
    this.unheard += 1;
    this.client.publish(this.own, '').catch(() => {});
  }

  private heard(): void {
    this.unheard = 0;
    if (this.connected) return;
    this.connected = true;
    this.onConnected();
  }

  private lost(): void {
    if (!this.connected) return;
    this.connected = false;
    this.onDisconnected();
  }
}
