import type { CacheListener } from '../../../contracts/cache-store.js';
import type { Notice } from '../../../contracts/start-request.js';
import { connectionForMessages } from '../messages/redis-subscriber.js';
import { type ChannelMessage, WatchedSubscriber } from '../messages/watched-subscriber.js';
import type { RedisSubscriber } from '../redis-client.js';
import type { ScriptRunner } from '../scripting/script-runner.js';

const KINDS = ['i', 'e', 't', 'p', 'd'];

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

  protected connect(): RedisSubscriber | undefined {
    return connectionForMessages(this.scripts.client);
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
