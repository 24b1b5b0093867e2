import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  Pending,
  QueueAnswer,
  QueueListener,
  QueueMessage,
  ReleaseAnswer,
  RequeueRequest,
} from '../../../contracts/lock-backend.js';
import { LONGEST_DELAY } from '../../../timing/clock.js';
import { mastersOf, type RedisSubscriber } from '../connection/redis-client.js';
import type { RedisLink } from '../connection/redis-link.js';
import { leaseOf, type RedisInteger, tokenRange, unexpected } from '../connection/redis-script.js';
import { ScriptBatch } from '../connection/script-batch.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { type ChannelMessage, WatchedSubscriber } from '../connection/watched-subscriber.js';
import type { FencingScripts } from './fencing-scripts.js';
import { channelPrefix, keysOf, publishArgument } from './redis-lock-keys.js';
import { RENEW, RENEW_ONE } from './release.lua.js';

/** The queue of the Redis backend: one list of tickets for each lock, and one channel for each process. */
export class RedisLockQueue implements LockQueue {
  private channel: RedisLockChannel | undefined;
  private readonly scripts: ScriptRunner;
  private closed = false;
  private readonly enqueues: ScriptBatch;
  private readonly reads: ScriptBatch;
  private readonly beats: ScriptBatch;

  constructor(
    private readonly link: RedisLink,
    private readonly fencing: FencingScripts,
  ) {
    const { scripts } = link;
    this.scripts = scripts;
    this.enqueues = new ScriptBatch(scripts, fencing.acquireOrEnqueue);
    this.reads = new ScriptBatch(scripts, fencing.readOrEnqueue);
    this.beats = new ScriptBatch(scripts, fencing.beat);
  }

  async listen(listener: QueueListener): Promise<void> {
    if (this.closed) throw new Error('The backend is closed');
    const channels = channelPrefix(listener);
    if (!this.channel) prepareRenewals(this.scripts);
    this.channel ??= new RedisLockChannel(this.link, channels);
    await this.channel.listen(channels + listener.process, listener);
  }

  unlisten(listener: Pick<QueueListener, 'prefix' | 'process'>): void {
    this.channel?.unlisten(channelPrefix(listener) + listener.process);
  }

  enqueue(request: EnqueueRequest): Pending<QueueAnswer> {
    const { ticket, ttl, claim, name, mode } = request;
    const args = [ticket, ttl, claim === undefined ? '' : `${claim}:${name}`];
    const batch = mode === 'read' ? this.reads : this.enqueues;
    return batch.run(publishArgument(request, this.link.client), keysOf(request), args, (reply) => {
      if (Array.isArray(reply)) return queueAnswer(reply as QueueReply);
      // The name was free and nobody waited for it.
      const first = Number(reply);
      if (!(Number.isSafeInteger(first) && first > 0)) throw unexpected(reply, 'a fencing token');
      return { status: 'granted', tokens: { first, count: 1 }, remaining: ttl, waiting: 0 };
    });
  }

  beat(request: BeatRequest): Pending<QueueAnswer | { status: 'gone' }> {
    return this.beats.run(publishArgument(request, this.link.client), keysOf(request), [request.ticket], (reply) =>
      Number((reply as QueueReply)[0]) === -1 ? { status: 'gone' } : queueAnswer(reply as QueueReply),
    );
  }

  async requeue(request: RequeueRequest): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const disconnects = this.scripts.disconnects;
    const { ticket, again, claim, name } = request;
    const args = [publishArgument(request, this.link.client), ticket, again, `${claim}:${name}`];
    const reply = (await this.scripts.run(this.fencing.requeue, keysOf(request), args)) as QueueReply;
    if (Number(reply[0]) !== -1) return queueAnswer(reply);
    return { status: 'not-owner', resent: this.scripts.disconnects !== disconnects };
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

export type QueueReply = [status: RedisInteger, ...rest: RedisInteger[]];

export function queueAnswer(reply: QueueReply): QueueAnswer {
  if (Number(reply[0]) === 1) {
    const [, first, count, pttl, waiting] = reply;
    return {
      status: 'granted',
      tokens: tokenRange([first, count]),
      // A key without an expiry (somebody called PERSIST) is ours until its next renewal.
      remaining: Math.min(leaseOf(pttl), LONGEST_DELAY),
      waiting: Number(waiting),
    };
  }
  const [, unissued, place, pttl, owner, unreached] = reply;
  return {
    status: 'busy',
    unissued: Number(unissued),
    first: Number(place) === 1,
    far: Number(place) === 0,
    unreached: Number(unreached) > 0,
    remaining: leaseOf(pttl),
    owner: String(owner),
  };
}

/** What RELEASE or KEEP has answered. */
export function releaseStatus(reply: unknown): ReleaseAnswer['status'] {
  const answer = Number(reply);
  return answer === 1 ? 'released' : answer === 0 ? 'gone' : 'taken';
}

/** The messages of the lock queue: one channel for each module that uses the backend. */
class RedisLockChannel extends WatchedSubscriber {
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
  if (!(Number(first) > 0 && Number(count) >= 0 && Number(claim) > 0)) return undefined;
  return {
    kind,
    ticket,
    name: name.join(' '),
    tokens: tokenRange([first, count]),
    claim: Number(claim),
    waiting: Number(waiting),
  };
}
