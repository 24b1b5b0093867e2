import type { RedisCluster, RedisNode, RedisStream, SubscriberOptions } from '../redis-client.js';
import { AdaptedClient, sendOptions } from './adapted-client.js';
import { AdaptedCommands } from './adapted-commands.js';
import { nodeOptions, streamOf } from './adapted-node.js';
import { AdaptedSubscriber, messageConnection } from './adapted-subscriber.js';
import { named } from './reply-errors.js';
import { Poll } from './poll.js';
import {
  keyPrefixOf,
  type CommandArgument,
  type NodeRedisAddress,
  type NodeRedisCluster,
  type NodeRedisMaster,
  type SendOptions,
} from './node-redis-clients.js';

/** How long (ms) a node's client keeps a command that it cannot send: the default of `commandTimeout`. */
const PATIENCE = 1_000;

/** What `createCluster` of node-redis returns. */
export class AdaptedCluster extends AdaptedClient implements RedisCluster {
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
