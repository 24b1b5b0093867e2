import { EventEmitter } from 'node:events';
import type { RedisStream, RedisSubscriber } from '../redis-client.js';
import type { MessageListener, NodeRedisClient, SendOptions } from './node-redis-clients.js';
import { named } from './reply-errors.js';

/** What a connection for messages needs of node-redis. */
export interface MessageConnection extends Pick<NodeRedisClient, 'connect' | 'subscribe' | 'unsubscribe' | 'destroy'> {
  sendCommand?(args: readonly string[], options: SendOptions): Promise<unknown>;
  on(event: string, listener: () => void): unknown;
}

/** A copy of the client for messages. It ends with the first loss of its connection, so that the loss is noticed. */
export function messageConnection(client: NodeRedisClient, protocol?: number): MessageConnection {
  return client.duplicate({
    socket: { ...client.options?.socket, reconnectStrategy: false },
    commandOptions: {},
    disableOfflineQueue: false,
    ...(protocol !== undefined && {
      RESP: protocol,
      clientSideCache: undefined,
      emitInvalidate: false,
      maintNotifications: 'disabled',
    }),
  });
}

/** A connection for messages in the form of ioredis. It connects at once, and does not reconnect. */
export class AdaptedSubscriber extends EventEmitter implements RedisSubscriber {
  readonly stream: RedisStream = { destroy: () => this.end() };
  private connection: MessageConnection | undefined;
  private ended = false;
  private readonly opened: Promise<MessageConnection>;
  private readonly onMessage: MessageListener = (message, channel) => this.emit('messageBuffer', channel, message);

  constructor(make: () => Promise<MessageConnection>) {
    super();
    this.opened = this.open(make);
    // The event `end` tells of it.
    this.opened.catch(() => {});
  }

  async connect(): Promise<void> {
    await this.opened;
  }

  async call(command: string, ...args: (string | number)[]): Promise<unknown> {
    const connection = await this.opened;
    if (!connection.sendCommand)
      throw named(new Error(`ERR ${command} cannot be sent by a Sentinel client of node-redis`));
    return answered(connection.sendCommand([command, ...args.map(String)], { typeMapping: {} }));
  }

  async subscribe(...channels: string[]): Promise<unknown> {
    const connection = await this.opened;
    return answered(connection.subscribe(channels, this.onMessage, true));
  }

  async unsubscribe(channel: string): Promise<unknown> {
    const connection = await this.opened;
    return answered(connection.unsubscribe([channel], this.onMessage, true));
  }

  disconnect(): void {
    this.end();
  }

  private async open(make: () => Promise<MessageConnection>): Promise<MessageConnection> {
    try {
      const connection = await make();
      this.connection = connection;
      connection.on('error', () => this.end());
      connection.on('end', () => this.end());
      await connection.connect();
      if (this.ended) throw new Error('The connection for messages was closed');
      this.emit('ready');
      return connection;
    } catch (error) {
      this.end();
      throw error;
    }
  }

  private end(): void {
    const first = !this.ended;
    this.ended = true;
    const { connection } = this;
    this.connection = undefined;
    try {
      connection?.destroy();
    } catch {
      // It was closed already.
    }
    if (!first) return;
    this.emit('close');
    this.emit('end');
  }
}

async function answered(reply: Promise<unknown>): Promise<unknown> {
  try {
    return await reply;
  } catch (error) {
    throw named(error);
  }
}
