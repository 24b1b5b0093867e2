import { setMaxListeners } from 'node:events';
import type { NodeOptions, RedisNode, RedisStream, SubscriberOptions } from '../redis-client.js';
import { AdaptedClient } from './adapted-client.js';
import { AdaptedSubscriber, messageConnection } from './adapted-subscriber.js';
import type { CommandArgument, NodeRedisClient, SendOptions } from './node-redis-clients.js';

/** What `createClient` of node-redis returns. */
export class AdaptedNode extends AdaptedClient implements RedisNode {
  readonly isCluster = false;
  protected readonly patience = undefined;
  private unsent = withoutLimit();

  constructor(private readonly client: NodeRedisClient) {
    super(client);
    this.hear('ready', () => this.emit('ready'));
    this.hear('error', (error: Error) => {
      this.report(error);
      if (!client.isReady) this.lost();
      if (!client.isOpen) this.emit('end');
    });
    this.hear('end', () => {
      this.lost();
      this.emit('end');
    });
  }

  get options(): NodeOptions {
    return nodeOptions(this.client, this.keyPrefix);
  }

  get stream(): RedisStream {
    return streamOf(this.client);
  }

  duplicate(options: SubscriberOptions): AdaptedSubscriber {
    return new AdaptedSubscriber(async () => messageConnection(this.client, options.protocol));
  }

  protected get isReady(): boolean {
    return this.client.isReady;
  }

  protected get resends(): boolean {
    return this.client.options?.disableOfflineQueue !== true;
  }

  protected deliver(_key: string | undefined, args: readonly CommandArgument[], send: SendOptions): Promise<unknown> {
    return this.client.sendCommand(args, { ...send, abortSignal: this.unsent.signal });
  }

  private lost(): void {
    // node-redis 5 writes commands that wait to be sent to the closed socket, and then waits for their replies for
    // ever.
    this.unsent.abort();
    this.unsent = withoutLimit();
    this.emit('close');
  }
}

/** Takes a listener from each command that waits to be sent. */
function withoutLimit(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

export function nodeOptions({ options = {} }: Pick<NodeRedisClient, 'options'>, keyPrefix: string): NodeOptions {
  const { socket = {}, username } = options;
  const { host = 'localhost', port = 6379, path, tls = false } = socket;
  return {
    host,
    port,
    keyPrefix,
    enableOfflineQueue: options.disableOfflineQueue !== true,
    maxRetriesPerRequest: null,
    ...(path !== undefined && { path }),
    ...(tls && { tls: {} }),
    ...(username !== undefined && { username }),
  };
}

const streams = new WeakMap<NodeRedisClient, { readonly epoch: number | undefined; readonly stream: RedisStream }>();

/** An object that stands for the present connection of the client. */
export function streamOf(client: NodeRedisClient): RedisStream {
  let known = streams.get(client);
  if (!known || known.epoch !== client.socketEpoch) {
    known = { epoch: client.socketEpoch, stream: { destroy: () => client.destroy() } };
    streams.set(client, known);
  }
  return known.stream;
}
