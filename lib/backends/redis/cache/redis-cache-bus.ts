// How a process learns of changes: from other processes (`RedisCacheBus`), and from Redis itself
// (`RedisCacheTracking`).

import type { RedisOptions } from 'ioredis';
import type { CacheListener, CacheTracker } from '../../../contracts/cache-store.js';
import type { Notice } from '../../../contracts/store.js';
import type { RedisSubscriber } from '../connection/redis-client.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { type ChannelMessage, connectionForMessages, WatchedSubscriber } from '../connection/watched-subscriber.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';

/**
 * The messages of the cache: `i` key (invalidated), `e` key (a load ended), `t` tag (invalidated), `p` prefix (values
 * deleted), `d` milliseconds (deletions scheduled with that delay). After a message of an unknown kind, any value may
 * have changed.
 */
export class RedisCacheBus extends WatchedSubscriber {
  private readonly listeners: CacheListener[] = [];

  constructor(
    scripts: ScriptRunner,
    private readonly channel: string,
    report: (notice: Notice) => void = () => {},
  ) {
    super(scripts, channel, {
      whose: 'the cache',
      without: 'its first level keeps nothing, and a caller that waits for the load of another process polls',
      report,
    });
  }

  listen(listener: CacheListener): void {
    this.listeners.push(listener);
    this.open();
    if (this.isConnected) listener.onConnected();
  }

  publish(message: string): Promise<unknown> {
    return this.scripts.command((client) => client.publish(this.channel, message));
  }

  protected subscribe(subscriber: RedisSubscriber, own: string): Promise<unknown> {
    return subscriber.subscribe(this.channel, own);
  }

  protected deliver(message: ChannelMessage): void {
    const text = String(message);
    const rest = text.slice(1);
    if (!KINDS.includes(text.charAt(0))) this.onStrangeMessage();
    for (const listener of this.listeners) {
      switch (text[0]) {
        case 'i':
          listener.onInvalidated(rest);
          break;
        case 'e':
          listener.onLoadEnded(rest);
          break;
        case 't':
          listener.onTagInvalidated(rest);
          break;
        case 'p':
          listener.onPrefixInvalidated(rest);
          break;
        case 'd':
          listener.onDeletionScheduled(Number(rest));
          break;
        default:
          listener.onPrefixInvalidated('');
      }
    }
  }

  protected onConnected(): void {
    for (const listener of this.listeners) listener.onConnected();
  }

  protected onDisconnected(): void {
    for (const listener of this.listeners) listener.onDisconnected();
  }
}

const KINDS = ['i', 'e', 't', 'p', 'd'];

/** Listens to client tracking: the server reports every changed value. */
export class RedisCacheTracking extends WatchedSubscriber {
  constructor(
    scripts: ScriptRunner,
    private readonly keys: RedisCacheKeys,
    private readonly tracker: CacheTracker,
    report: (notice: Notice) => void = () => {},
  ) {
    super(scripts, `${keys.channel}:tracking`, {
      whose: 'client tracking',
      without: 'the first level of the cache keeps nothing',
      report,
    });
    this.open();
  }

  protected override connect(): RedisSubscriber | undefined {
    return connectionForMessages(this.scripts.client, TRACKING);
  }

  protected async subscribe(subscriber: RedisSubscriber, own: string): Promise<void> {
    const id = (await subscriber.call('CLIENT', 'ID')) as number;
    const { beforeKeys } = this.keys;
    await subscriber.call('CLIENT', 'TRACKING', 'ON', 'REDIRECT', id, 'BCAST', 'PREFIX', beforeKeys);
    await subscriber.subscribe(INVALIDATE, own);
  }

  protected deliver(changed: ChannelMessage): void {
    if (changed === null) return this.tracker.onAllChanged();
    for (const value of changed as readonly Buffer[]) this.tracker.onChanged(this.keys.keyOf(value.toString()));
  }

  protected onConnected(): void {
    this.tracker.onTracked();
  }

  protected onDisconnected(): void {
    this.tracker.onUntracked();
  }

  protected override onRefused(error: Error): void {
    // Any other error comes from the connection, which reconnects.
    if (error.name === 'ReplyError') this.tracker.onUntracked(error);
  }
}

/** The channel on which Redis reports changed keys to a RESP2 connection. */
const INVALIDATE = '__redis__:invalidate';

/**
 * RESP2, because ioredis 6 drops the messages of client tracking under RESP3 (ioredis 5 knows only RESP2 and ignores
 * the option). Commands are not resent on a new connection: CLIENT TRACKING names an id that the new connection does
 * not have.
 */
const TRACKING = {
  protocol: 2,
  replyMapping: 'legacy',
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
} satisfies RedisOptions;
