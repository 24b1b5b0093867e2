import type { ModuleContext } from '../../../contracts/lock-backend.js';
import { mastersOf, type RedisSubscriber } from '../connection/redis-client.js';
import type { RedisLink } from '../connection/redis-link.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { type ChannelMessage, subscribeAll, WatchedSubscriber } from '../connection/watched-subscriber.js';
import type { LockKeys } from './redis-lock-keys.js';
import { RENEW, RENEW_ONE } from './release.lua.js';

/** The connection for the messages of all modules. The first of them that waits opens it. */
export class LockChannels {
  private channel: RedisLockChannel | undefined;
  private closed = false;

  constructor(private readonly link: RedisLink) {}

  async listen({ channels }: LockKeys, module: ModuleContext): Promise<void> {
    if (this.closed) throw new Error('The backend is closed');
    if (!this.channel) prepareRenewals(this.link.scripts);
    this.channel ??= new RedisLockChannel(this.link, channels);
    await this.channel.listen(channels + module.process, module);
  }

  unlisten({ channels }: LockKeys, { process }: ModuleContext): void {
    this.channel?.unlisten(channels + process);
  }

  close(): void {
    this.closed = true;
    this.channel?.close();
  }
}

/**
 * Makes the server, or each master of a Cluster, know the script for renewals: a process that is handed a claim, or
 * what is left of the lease of its holder before, may have no time to send it again.
 */
export function prepareRenewals({ client }: ScriptRunner): void {
  const { lua } = client.isCluster ? RENEW_ONE : RENEW;
  for (const node of mastersOf(client)) node.eval(lua, 0).catch(() => {});
}

/** The messages of the lock queue: one channel for each module that uses the backend. */
class RedisLockChannel extends WatchedSubscriber {
  /** By channel. */
  private readonly listeners = new Map<string, ModuleContext>();
  /** By channel: the subscription that Redis has not answered yet. Without a connection, the client keeps it. */
  private readonly subscribing = new Map<string, Promise<unknown>>();

  /** `channels` is the text with which the channels of all processes begin. */
  constructor(link: RedisLink, channels: string) {
    super(link.scripts, `${channels}beat`, {
      whose: 'the locks',
      without: 'waiters poll, and get their lock later',
      report: link.listeners.report,
    });
  }

  /** Rejects when Redis refuses the channel. */
  async listen(channel: string, listener: ModuleContext): Promise<void> {
    this.listeners.set(channel, listener);
    this.open();
    const { connection } = this;
    if (connection) {
      let pending = this.subscribing.get(channel);
      if (!pending) {
        pending = connection.subscribe(channel).finally(() => this.subscribing.delete(channel));
        this.subscribing.set(channel, pending);
      }
      await pending;
    }
    // Until its first heartbeat has arrived.
    if (!this.isConnected) listener.interrupted();
  }

  unlisten(channel: string): void {
    if (!this.listeners.delete(channel)) return;
    // Without listeners the connection closes soon anyway; the next one subscribes to the channels in use.
    if (this.listeners.size > 0) this.connection?.unsubscribe(channel).catch(() => {});
  }

  protected subscribe(subscriber: RedisSubscriber, own: string): Promise<unknown> {
    return subscribeAll(subscriber, [...this.listeners.keys(), own]);
  }

  /**
   * `revoked ticket`, `wanted ticket name`, `ends ticket remaining name`,
   * `grant ticket first-token tokens claim waiting name` or `hello ticket`; a name may have spaces. A later version
   * that changes what a message says gives it another kind.
   */
  protected deliver(text: ChannelMessage, channel: string): void {
    const listener = this.listeners.get(channel);
    const [kind = '', ticket = '', ...rest] = String(text).split(' ');
    if (kind === 'hello') return;
    if (kind === 'revoked') return listener?.message({ kind, ticket });
    if (kind === 'wanted') return listener?.message({ kind, ticket, name: rest.join(' ') });
    if (kind === 'ends') {
      const [remaining, ...name] = rest;
      return listener?.message({ kind, ticket, remaining: Number(remaining), name: name.join(' ') });
    }
    const [first = NaN, count = NaN, claim = NaN, waiting = NaN] = rest.map(Number);
    // Which of the tokens have a holder, if any, is known where all grants are looked at.
    if (kind !== 'grant' || !(first > 0 && count >= 0 && claim > 0)) return this.onStrangeMessage();
    listener?.message({ kind, ticket, name: rest.slice(4).join(' '), tokens: { first, count }, claim, waiting });
  }

  protected onConnected(): void {
    for (const listener of this.listeners.values()) listener.reconnected();
  }

  protected onDisconnected(): void {
    for (const listener of this.listeners.values()) listener.interrupted();
  }
}
