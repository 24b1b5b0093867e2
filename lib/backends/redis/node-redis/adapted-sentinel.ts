import { EventEmitter } from 'node:events';
import type { NodeOptions, RedisNode, RedisStream } from '../redis-client.js';
import { AdaptedClient } from './adapted-client.js';
import { AdaptedSubscriber, type MessageConnection } from './adapted-subscriber.js';
import type {
  CommandArgument,
  MessageListener,
  NodeRedisAddress,
  NodeRedisSentinel,
  SendOptions,
} from './node-redis-clients.js';
import { Poll } from './poll.js';

/** How long (ms) a command waits until the client has a connection: the default of `commandTimeout`. */
const PATIENCE = 1_000;
const UNKNOWN = { path: 'the address that its Sentinels tell' };

/**
 * What `createSentinel` of node-redis returns. It stays "ready" while its master is away, and emits no event when the
 * same master is back.
 */
export class AdaptedSentinel extends AdaptedClient implements RedisNode {
  readonly isCluster = false;
  stream: RedisStream = { destroy: () => {} };
  protected readonly patience = PATIENCE;
  protected readonly resends = true;
  private asked: NodeRedisAddress | undefined;
  private readonly poll = new Poll(
    () => this.isReady,
    () => {
      this.stream = { destroy: () => {} };
      this.emit('ready');
    },
  );

  constructor(private readonly sentinel: NodeRedisSentinel) {
    super(sentinel);
    this.hear('error', (error: Error) => this.report(error));
    this.hear('client-error', ({ type, error }: { type: string; error: Error }) => {
      if (type !== 'MASTER') return;
      this.report(error);
      this.lost();
    });
    this.hear('topology-change', ({ type }: { type: string }) => {
      if (type === 'MASTER_CHANGE') this.lost();
    });
    if (sentinel.isOpen && !this.isReady) this.poll.start();
  }

  get options(): NodeOptions {
    this.asked = this.sentinel.getSentinelNode() ?? this.asked;
    const { keyPrefix, asked } = this;
    return { keyPrefix, maxRetriesPerRequest: null, ...(asked ? { sentinels: [asked] } : UNKNOWN) };
  }

  duplicate(): AdaptedSubscriber {
    return new AdaptedSubscriber(async () => new SentinelMessages(this.sentinel, this));
  }

  override disconnect(): void {
    this.poll.stop();
    super.disconnect();
  }

  protected get isReady(): boolean {
    return this.sentinel.isOpen && this.sentinel.getMasterNode() !== undefined;
  }

  protected deliver(_key: string | undefined, args: readonly CommandArgument[], send: SendOptions): Promise<unknown> {
    return this.sentinel.sendCommand(false, args, send);
  }

  private lost(): void {
    this.emit('close');
    this.poll.start();
  }
}

/**
 * The connection for messages that every Sentinel client of node-redis has, and moves to a new master. A Sentinel
 * client cannot be asked for another connection to the master.
 */
class SentinelMessages extends EventEmitter implements MessageConnection {
  private readonly channels = new Set<string>();
  private listener: MessageListener | undefined;

  constructor(
    private readonly sentinel: NodeRedisSentinel,
    private readonly client: AdaptedSentinel,
  ) {
    super();
  }

  async connect(): Promise<void> {
    if (this.client.status !== 'ready') throw new Error('The Sentinel client has no master');
  }

  async subscribe(channels: string[], listener: MessageListener): Promise<void> {
    this.listener = listener;
    for (const channel of channels) this.channels.add(channel);
    await this.sentinel.subscribe(channels, listener, true);
  }

  async unsubscribe(channels: string[], listener: MessageListener): Promise<void> {
    for (const channel of channels) this.channels.delete(channel);
    await this.sentinel.unsubscribe(channels, listener, true);
  }

  destroy(): void {
    const { listener } = this;
    if (listener) this.unsubscribe([...this.channels], listener).catch(() => {});
  }
}
