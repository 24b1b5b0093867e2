import type { RedisSubscriber } from '../connection/redis-client.js';
import type { RedisLink } from '../connection/redis-link.js';
import { type ChannelMessage, subscribeAll, WatchedSubscriber } from '../connection/watched-subscriber.js';

/** How long (ms) a channel stays subscribed after its listener has left: the next wait may follow soon. */
const IDLE = 10_000;

/**
 * The messages of the primitives of one module, on one channel for each process id. Opens a connection with the first
 * listener, and closes it when there has been none for a while. A message is `kind text`.
 */
export class RedisPrimitiveChannel {
  private readonly subscriptions = new Map<string, Subscription>();
  private subscriber: PrimitiveSubscriber | undefined;
  private closed = false;

  /** `channels` is the text with which the channels of all processes begin. */
  constructor(
    private readonly link: RedisLink,
    private readonly channels: string,
  ) {}

  /** Each process id has one listener, which may leave and come back. */
  listen(kind: string, process: string, listener: PrimitiveListener): void {
    if (this.closed) return;
    const channel = this.channels + process;
    const present = this.subscriptions.get(channel);
    clearTimeout(present?.idle);
    this.subscriptions.set(channel, { kind, listener, idle: undefined });
    this.subscriber ??= new PrimitiveSubscriber(this.link, this.channels, this.subscriptions);
    if (!present) this.subscriber.add(channel);
  }

  unlisten(process: string): void {
    const channel = this.channels + process;
    const subscription = this.subscriptions.get(channel);
    if (!subscription) return;
    clearTimeout(subscription.idle);
    subscription.idle = setTimeout(() => this.unsubscribe(channel), IDLE).unref();
  }

  close(): void {
    this.closed = true;
    for (const { idle } of this.subscriptions.values()) clearTimeout(idle);
    this.subscriptions.clear();
    this.disconnect();
  }

  private unsubscribe(channel: string): void {
    this.subscriptions.delete(channel);
    if (this.subscriptions.size === 0) this.disconnect();
    else this.subscriber?.remove(channel);
  }

  private disconnect(): void {
    this.subscriber?.close();
    this.subscriber = undefined;
  }
}

/** What listens to the messages of one kind for one process. */
interface PrimitiveListener {
  /** `text` is the message without its kind. */
  onMessage(text: string): void;
  onConnected(): void;
}

interface Subscription {
  readonly kind: string;
  readonly listener: PrimitiveListener;
  /** Ends the subscription, once its listener has left. */
  idle: NodeJS.Timeout | undefined;
}

class PrimitiveSubscriber extends WatchedSubscriber {
  constructor(
    link: RedisLink,
    channels: string,
    private readonly subscriptions: ReadonlyMap<string, Subscription>,
  ) {
    super(link.scripts, `${channels}beat`, {
      whose: 'the primitives',
      without: 'waiters ask again, and are served later',
      report: link.listeners.report,
    });
  }

  add(channel: string): void {
    this.open();
    // Before that, the connection subscribes to all channels at once.
    if (this.isConnected) this.subscribeTo(channel);
  }

  remove(channel: string): void {
    if (this.isConnected) this.connection?.unsubscribe(channel).catch(() => {});
  }

  protected subscribe(subscriber: RedisSubscriber, own: string): Promise<unknown> {
    return subscribeAll(subscriber, [...this.subscriptions.keys(), own]);
  }

  protected deliver(message: ChannelMessage, channel: string): void {
    const text = String(message);
    const { kind, listener } = this.subscriptions.get(channel) ?? {};
    if (kind === undefined) return;
    if (text.startsWith(`${kind} `)) listener?.onMessage(text.slice(kind.length + 1));
    else this.onStrangeMessage();
  }

  /** Subscribes again to all channels: one may have been added while the connection was being made. */
  protected onConnected(): void {
    for (const channel of this.subscriptions.keys()) this.subscribeTo(channel);
  }

  protected onDisconnected(): void {}

  private subscribeTo(channel: string): void {
    this.connection?.subscribe(channel).then(
      () => this.subscriptions.get(channel)?.listener.onConnected(),
      () => {},
    );
  }
}
