import type { Redis, RedisOptions } from 'ioredis';
import type { CacheTracker } from '../../../contracts/cache-store.js';
import type { Notice } from '../../../contracts/start-request.js';
import type { RedisClient } from '../redis-client.js';
import { connectionForMessages } from '../messages/redis-subscriber.js';
import { type ChannelMessage, WatchedSubscriber } from '../messages/watched-subscriber.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';

/** Where a connection of RESP2 hears of changes. */
const INVALIDATE = '__redis__:invalidate';

/**
 * ioredis 6 drops what a connection of RESP3 hears of changes; ioredis 5 has no such option, and needs none. Nothing is
 * sent on another connection than it was meant for: the id of the client changes with it.
 */
const TRACKING = {
  protocol: 2,
  replyMapping: 'legacy',
  autoResubscribe: false,
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
} satisfies RedisOptions;

/** Hears from Redis of every change to a value, on a connection of its own. */
export class RedisCacheTracking extends WatchedSubscriber {
  constructor(
    client: RedisClient,
    private readonly keys: RedisCacheKeys,
    private readonly tracker: CacheTracker,
    report: (notice: Notice) => void = () => {},
  ) {
    super(client, `${keys.channel}:tracking`, {
      whose: 'client tracking',
      without: 'the first level of the cache keeps nothing',
      report,
    });
    this.open();
  }

  protected connect(): Redis | undefined {
    return connectionForMessages(this.client, TRACKING);
  }

  protected async subscribe(subscriber: Redis, own: string): Promise<void> {
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
    // Any other error is one of the connection, which is made anew.
    if (error.name === 'ReplyError') this.tracker.onUntracked(error);
  }
}
