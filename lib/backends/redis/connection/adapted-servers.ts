// A node-redis client of any kind, in the form of ioredis: of one server (`AdaptedNode`, in adapted-client.ts), of a
// Cluster, or of Sentinels. The commands are in adapted-commands.ts; node-redis-clients.ts says what is used of
// node-redis.

import { EventEmitter } from 'node:events';
import type { NodeRedisConnection } from '../../../options/redis-connection.js';
import {
  AdaptedClient,
  AdaptedNode,
  AdaptedSubscriber,
  messageConnection,
  type MessageConnection,
  nodeOptions,
  sendOptions,
  streamOf,
} from './adapted-client.js';
import { AdaptedCommands, named } from './adapted-commands.js';
import {
  type CommandArgument,
  isNodeRedisCluster,
  isNodeRedisSentinel,
  keyPrefixOf,
  type MessageListener,
  type NodeRedisAddress,
  type NodeRedisClient,
  type NodeRedisCluster,
  type NodeRedisMaster,
  type NodeRedisSentinel,
  onMaster,
  type SendOptions,
} from './node-redis-clients.js';
import type {
  NodeOptions,
  RedisClient,
  RedisCluster,
  RedisNode,
  RedisStream,
  SubscriberOptions,
} from './redis-client.js';

/** A client of node-redis in the form of ioredis. */
export function adapted(client: NodeRedisConnection): RedisClient {
  if (isNodeRedisCluster(client)) return new AdaptedCluster(client);
  if (isNodeRedisSentinel(client)) return new AdaptedSentinel(client);
  return new AdaptedNode(client as NodeRedisClient);
}

/** How long (ms) a command waits for a connection to its node: the default of `commandTimeout`. */
const PATIENCE = 1_000;

/** What `createCluster` of node-redis returns. */
class AdaptedCluster extends AdaptedClient implements RedisCluster {
  readonly isCluster = true;
  readonly options: RedisCluster['options'];
  protected readonly patience = PATIENCE;
  protected readonly resends = true;
  private readonly poll = new Poll(
    () => this.cluster.masters.every(({ client }) => client?.isReady !== false),
    () => this.emit('+node'),
  );

  constructor(private readonly cluster: NodeRedisCluster) {
    super(cluster);
    this.options = { keyPrefix: this.keyPrefix };
    this.hear('connect', () => this.emit('ready'));
    this.hear('error', (error: Error) => this.report(error));
    this.hear('node-error', (error: Error, { host, port }: NodeRedisAddress) => {
      this.emit('node error', error, `${host}:${port}`);
      this.poll.start();
    });
    this.hear('disconnect', () => {
      this.emit('close');
      this.emit('end');
    });
  }

  /** The addresses that the Cluster was made with. node-redis has no public member for them. */
  get startupNodes(): readonly (string | NodeRedisAddress)[] {
    const options = Reflect.get(this.cluster, '_options') as { rootNodes?: readonly RootNode[] } | undefined;
    return (options?.rootNodes ?? []).map(({ url, socket }) => url ?? { host: 'localhost', port: 6379, ...socket });
  }

  get keepsSilent(): boolean {
    const options = Reflect.get(this.cluster, '_options') as { defaults?: { socket?: { socketTimeout?: number } } };
    return !options?.defaults?.socket?.socketTimeout;
  }

  get slots(): string[][] {
    return Array.from(this.cluster.slots, (shard) => (shard ? [shard.master.address] : []));
  }

  nodes(): RedisNode[] {
    return this.cluster.masters.map((master) => new AdaptedMaster(this.cluster, master));
  }

  override disconnect(): void {
    this.poll.stop();
    super.disconnect();
  }

  protected get isReady(): boolean {
    return this.cluster.isOpen && this.cluster.masters.length > 0;
  }

  protected async deliver(
    key: string | undefined,
    args: readonly CommandArgument[],
    options: SendOptions,
  ): Promise<unknown> {
    const { cluster } = this;
    if (key !== undefined) return cluster.sendCommand(key, false, args, options);
    const master = cluster.masters[Math.floor(Math.random() * cluster.masters.length)];
    if (!master) throw new Error('No node of the Cluster is known');
    return (await cluster.nodeClient(master)).sendCommand(args, options);
  }
}

interface RootNode {
  readonly url?: string;
  readonly socket?: Partial<NodeRedisAddress>;
}

/** One master. Its client connects at the first command where the Cluster has `minimizeConnections`. */
class AdaptedMaster extends AdaptedCommands implements RedisNode {
  readonly isCluster = false;

  constructor(
    private readonly cluster: NodeRedisCluster,
    private readonly master: NodeRedisMaster,
  ) {
    super(keyPrefixOf(cluster));
  }

  get status(): string {
    return this.master.client?.isReady ? 'ready' : 'connecting';
  }

  get options(): RedisNode['options'] {
    const { host, port } = this.master;
    return { ...nodeOptions(this.master.client ?? {}, this.keyPrefix), host, port };
  }

  get stream(): RedisStream | undefined {
    return this.master.client && streamOf(this.master.client);
  }

  duplicate(options: SubscriberOptions): AdaptedSubscriber {
    return new AdaptedSubscriber(async () =>
      messageConnection(await this.cluster.nodeClient(this.master), options.protocol),
    );
  }

  /** The Cluster looks after the connection. */
  disconnect(): void {}

  protected async send(_key: string | undefined, args: readonly CommandArgument[], bytes?: boolean): Promise<unknown> {
    try {
      return await (await this.cluster.nodeClient(this.master)).sendCommand(args, sendOptions(bytes, PATIENCE));
    } catch (error) {
      throw named(error);
    }
  }
}

/**
 * What `createSentinel` of node-redis returns. It emits no event when the connection to its master is lost, nor when
 * the same master is back, and then sends by itself again what was not answered: the clients of its masters tell.
 */
class AdaptedSentinel extends AdaptedClient implements RedisNode {
  readonly isCluster = false;
  stream: RedisStream = { destroy: () => {} };
  protected readonly patience = PATIENCE;
  protected readonly resends = true;
  private asked: NodeRedisAddress | undefined;
  /** Those of its pool that have sent a command, with what ends the watch of each. */
  private readonly masters = new Map<NodeRedisClient, () => void>();
  private over = false;
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
    this.over = true;
    for (const forget of this.masters.values()) forget();
    super.disconnect();
  }

  protected get isReady(): boolean {
    return this.sentinel.isOpen && this.sentinel.getMasterNode() !== undefined;
  }

  protected deliver(_key: string | undefined, args: readonly CommandArgument[], send: SendOptions): Promise<unknown> {
    return onMaster(this.sentinel, (master) => {
      // node-redis may send a command again after the application has ended.
      if (!this.over && !this.masters.has(master)) this.watch(master);
      return master.sendCommand(args, send);
    });
  }

  /** Learns when the connection is lost, until the client is closed, as after a failover. */
  private watch(master: NodeRedisClient): void {
    const onError = (error: Error) => {
      this.report(error);
      this.lost();
    };
    const forget = () => {
      master.off('error', onError).off('end', forget);
      this.masters.delete(master);
    };
    this.masters.set(master, forget);
    master.on('error', onError).on('end', forget);
  }

  private lost(): void {
    this.emit('close');
    this.poll.start();
  }
}

const UNKNOWN = { path: 'the address that its Sentinels tell' };

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

/** How often (ms) a `Poll` looks. */
const PERIOD = 50;

/** Waits for a state of which node-redis emits no event. */
class Poll {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly reached: () => boolean,
    private readonly whenReached: () => void,
  ) {}

  start(): void {
    this.timer ??= setInterval(() => {
      if (!this.reached()) return;
      this.stop();
      this.whenReached();
    }, PERIOD).unref();
  }

  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }
}
