import type { RedisOptions } from 'ioredis';
import type { CacheTracker } from '../../../contracts/cache-store.js';
import type { Notice } from '../../../contracts/start-request.js';
import { connectionForMessages } from '../messages/redis-subscriber.js';
import { type ChannelMessage, WatchedSubscriber } from '../messages/watched-subscriber.js';
import type { RedisSubscriber } from '../redis-client.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';

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

  protected connect(): RedisSubscriber | undefined {
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
