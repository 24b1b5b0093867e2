import type { Redis, RedisOptions } from 'ioredis';
import type { CacheTracker } from '../../../contracts/cache-store.js';
import type { Notice } from '../../../contracts/start-request.js';
import { connectionForMessages } from '../messages/redis-subscriber.js';
import { type ChannelMessage, WatchedSubscriber } from '../messages/watched-subscriber.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';

/** The channel on which Redis tells a RESP2 connection of changed keys. */
const INVALIDATE = '__redis__:invalidate';

/**
 * RESP2, because ioredis 6 drops the messages of client tracking under RESP3 (ioredis 5 knows only RESP2 and ignores the
 * option). No command is resent on a new connection, because the id that CLIENT TRACKING names changes with it.
 */
const TRACKING = {
  protocol: 2,
  replyMapping: 'legacy',
  autoResubscribe: false,
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
} satisfies RedisOptions;

/** Listens to client tracking: Redis itself tells of every changed value. */
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

  protected connect(): Redis | undefined {
    return connectionForMessages(this.scripts.client, TRACKING);
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
    // Any other error is one of the connection, which is made again.
    if (error.name === 'ReplyError') this.tracker.onUntracked(error);
  }
}
