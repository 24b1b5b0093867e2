import type { QueueListener, QueueMessage, TokenRange } from '../../../contracts/lock-backend.js';
import type { RedisLink } from '../redis-link.js';
import { connectionForMessages } from '../messages/redis-subscriber.js';
import { type ChannelMessage, WatchedSubscriber } from '../messages/watched-subscriber.js';
import type { RedisSubscriber } from '../redis-client.js';

/** The messages of the lock queue: one channel for each module that uses the backend. */
export class RedisLockChannel extends WatchedSubscriber {
  /** By channel. */
  private readonly listeners = new Map<string, QueueListener>();
  /** By channel: the subscription that Redis has not answered yet. Without a connection, the client keeps it. */
  private readonly subscribing = new Map<string, Promise<unknown>>();

  /** `channels` is the text with which the channels of all processes begin. */
  constructor(link: RedisLink, channels: string) {
    super(link.scripts, `${channels}beat`, {
      whose: 'the locks',
      without: 'waiters poll, and get their lock later',
      report: link.reporters.report,
    });
  }

  /** Rejects when Redis refuses the channel. */
  async listen(channel: string, listener: QueueListener): Promise<void> {
    this.listeners.set(channel, listener);
    this.open();
    const { connection } = this;
    if (!connection) return;
    let pending = this.subscribing.get(channel);
    if (!pending) {
      pending = connection.subscribe(channel).finally(() => this.subscribing.delete(channel));
      this.subscribing.set(channel, pending);
    }
    await pending;
  }

  unlisten(channel: string): void {
    if (!this.listeners.delete(channel)) return;
    // Without listeners the connection closes soon anyway; the next one subscribes to the channels in use.
    if (this.listeners.size > 0) this.connection?.unsubscribe(channel).catch(() => {});
  }

  protected connect(): RedisSubscriber | undefined {
    return connectionForMessages(this.scripts.client);
  }

  protected subscribe(subscriber: RedisSubscriber, own: string): Promise<unknown> {
    return subscriber.subscribe(...this.listeners.keys(), own);
  }

  protected deliver(text: ChannelMessage, channel: string): void {
    const message = parseMessage(String(text));
    if (message === undefined) this.onStrangeMessage();
    else if (message !== 'hello') this.listeners.get(channel)?.onMessage(message);
  }

  protected onConnected(): void {
    for (const listener of this.listeners.values()) listener.onReconnect();
  }

  protected onDisconnected(): void {}
}

/**
 * `revoked ticket`, `wanted ticket name`, `ends ticket remaining name`, `grant ticket first-token tokens claim waiting
 * name` or `hello ticket`; a name may have spaces. A later version that changes what a message says gives it another
 * kind. `undefined` for a message of an unknown kind.
 */
function parseMessage(text: string): QueueMessage | 'hello' | undefined {
  const [kind = '', ticket = '', ...rest] = text.split(' ');
  if (kind === 'hello') return kind;
  if (kind === 'revoked') return { kind, ticket };
  if (kind === 'wanted') return { kind, ticket, name: rest.join(' ') };
  if (kind === 'ends') return { kind, ticket, remaining: Number(rest[0]), name: rest.slice(1).join(' ') };
  if (kind !== 'grant') return undefined;
  const [first, count, claim, waiting, ...name] = rest;
  return {
    kind,
    ticket,
    name: name.join(' '),
    tokens: tokenRange(first, count),
    claim: Number(claim),
    waiting: Number(waiting),
  };
}

function tokenRange(first: string | undefined, count: string | undefined): TokenRange {
  return { first: Number(first), count: Number(count) };
}
