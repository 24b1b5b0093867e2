// What the adapted clients of node-redis share (events, states, sending once more), the client of one server, and the
// connections for messages.

import { EventEmitter, setMaxListeners } from 'node:events';
import type { NodeRedisConnection } from '../../../options/redis-connection.js';
import { AdaptedCommands, isReplyError, lastRedirection, named } from './adapted-commands.js';
import {
  type CommandArgument,
  keyPrefixOf,
  type MessageListener,
  type NodeRedisClient,
  type SendOptions,
} from './node-redis-clients.js';
import { allowListeners } from './own-client.js';
import { ReadyQueue } from './ready-queue.js';
import type { NodeOptions, RedisNode, RedisStream, RedisSubscriber, SubscriberOptions } from './redis-client.js';
import type { Traffic } from './silence-guard.js';

/**
 * A client of node-redis in the form of ioredis: its commands, its events and its states. Commands that a lost
 * connection left without an answer are sent once more on the next one, as ioredis does.
 */
export abstract class AdaptedClient extends AdaptedCommands {
  private readonly unanswered: ReadyQueue;
  private readonly detachments: (() => void)[] = [];

  readonly library = 'node-redis';

  constructor(private readonly connection: NodeRedisConnection) {
    super(keyPrefixOf(connection));
    this.detachments.push(allowListeners(connection, 1));
    this.unanswered = new ReadyQueue(this, () => new Error('The connection was lost before Redis answered'));
  }

  abstract get isCluster(): boolean;
  protected abstract get isReady(): boolean;
  /** How long (ms) node-redis keeps a command that it cannot send; `undefined` while `status` covers that. */
  protected abstract readonly patience: number | undefined;
  protected abstract readonly resends: boolean;
  protected abstract deliver(
    key: string | undefined,
    args: readonly CommandArgument[],
    options: SendOptions,
  ): Promise<unknown>;

  get status(): 'ready' | 'connecting' | 'end' {
    if (this.isReady) return 'ready';
    return this.connection.isOpen ? 'connecting' : 'end';
  }

  /** Lets go of the client, which stays open. */
  disconnect(): void {
    this.unanswered.close();
    for (const detach of this.detachments) detach();
  }

  protected override async send(
    key: string | undefined,
    args: readonly CommandArgument[],
    bytes = false,
  ): Promise<unknown> {
    const options = sendOptions(bytes, this.patience);
    try {
      return await this.deliver(key, args, options);
    } catch (error) {
      if (isReplyError(error) || !this.resends) throw named(error);
      const redirected = lastRedirection(error);
      if (redirected) throw redirected;
      await this.whenReadyAgain();
      return await this.deliver(key, args, options).catch((again: unknown) => Promise.reject(named(again)));
    }
  }

  /** Calls `listener` for an event of the client until `disconnect`. */
  protected hear(event: string, listener: Parameters<NodeRedisConnection['on']>[1]): void {
    ours.add(listener);
    this.connection.on(event, listener);
    this.detachments.push(() => this.connection.off(event, listener));
  }

  /** Passes an error on. Prints it where the application has no listener, as ioredis does. */
  protected report(error: Error): void {
    if (this.connection.listeners('error').every((listener) => ours.has(listener)))
      console.error('[node-redis] Unhandled error event:', error.stack);
    // Without a listener, `emit` would throw the error.
    if (this.listenerCount('error') > 0) this.emit('error', error);
  }

  private whenReadyAgain(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (!this.unanswered.take(resolve, reject)) resolve();
    });
  }
}

/** The listeners of `AdaptedClient`. An `error` of node-redis without a listener ends the process. */
const ours = new WeakSet<object>();

/** What `createClient` of node-redis returns. */
export class AdaptedNode extends AdaptedClient implements RedisNode {
  readonly isCluster = false;
  protected readonly patience = undefined;
  private unsent = withoutLimit();
  /** A copy of the client, used while the connection of the client is silent: nobody else can end that one. */
  private standIn: StandIn | undefined;
  /** Grows with each answer, and with each failed attempt to connect. */
  private received = 0;
  /** What rejects the commands without an answer. */
  private readonly unansweredHere = new Set<(why: Error) => void>();

  constructor(private readonly client: NodeRedisClient) {
    super(client);
    this.hear('ready', () => {
      if (this.standIn) this.replaceBy(undefined, new Error('The client has a connection again'));
      this.emit('ready');
    });
    this.hear('error', (error: Error) => {
      this.received += 1;
      this.report(error);
      if (this.standIn) return;
      if (!client.isReady) this.lost();
      if (!client.isOpen) this.emit('end');
    });
    this.hear('end', () => {
      if (this.standIn) this.replaceBy(undefined, new Error('The client was closed'));
      else this.lost();
      this.emit('end');
    });
  }

  get options(): NodeOptions {
    return nodeOptions(this.client, this.keyPrefix);
  }

  get stream(): RedisStream {
    return this.standIn?.stream ?? streamOf(this.client);
  }

  get traffic(): Traffic {
    const { stream, received } = this;
    const waits = this.isReady ? this.unansweredHere.size > 0 : this.client.isOpen;
    return { stream, received, waits, replace: (why) => this.fellSilent(why) };
  }

  duplicate(options: SubscriberOptions): AdaptedSubscriber {
    return new AdaptedSubscriber(async () => messageConnection(this.client, options.protocol));
  }

  override disconnect(): void {
    super.disconnect();
    if (this.standIn) this.replaceBy(undefined, new Error('The client is used no more'));
  }

  protected get isReady(): boolean {
    return this.present.isReady;
  }

  private get present(): NodeRedisClient {
    return this.standIn?.client ?? this.client;
  }

  protected get resends(): boolean {
    return this.client.options?.disableOfflineQueue !== true;
  }

  protected deliver(_key: string | undefined, args: readonly CommandArgument[], send: SendOptions): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const over = () => {
        this.received += 1;
        this.unansweredHere.delete(reject);
      };
      this.unansweredHere.add(reject);
      this.present.sendCommand(args, { ...send, abortSignal: this.unsent.signal }).then(
        (reply) => {
          over();
          resolve(reply);
        },
        (error: unknown) => {
          over();
          reject(error);
        },
      );
    });
  }

  /** node-redis keeps its socket to itself: a copy of the client serves until the client has another connection. */
  private fellSilent(why: Error): void {
    if (!this.client.isOpen) return;
    const client = this.client.duplicate({});
    client.on('error', (error: Error) => {
      if (this.standIn?.client !== client) return;
      this.received += 1;
      this.report(error);
      if (!client.isReady) this.lost();
    });
    client.on('ready', () => {
      if (this.standIn?.client === client) this.emit('ready');
    });
    this.replaceBy({ client, stream: { destroy: () => {} } }, why);
    client.connect().catch(() => {});
  }

  private replaceBy(standIn: StandIn | undefined, why: Error): void {
    const before = this.standIn;
    this.standIn = standIn;
    for (const reject of this.unansweredHere) reject(why);
    this.unansweredHere.clear();
    this.lost();
    if (before?.client.isOpen) before.client.destroy();
  }

  private lost(): void {
    // node-redis 5 writes commands that wait to be sent to the closed socket, and then waits for their replies for
    // ever.
    this.unsent.abort();
    this.unsent = withoutLimit();
    this.emit('close');
  }
}

interface StandIn {
  readonly client: NodeRedisClient;
  /** Stands for its connection. */
  readonly stream: RedisStream;
}

/** Takes a listener from each command that waits to be sent. */
function withoutLimit(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
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

export function sendOptions(bytes = false, timeout: number | undefined): SendOptions {
  return { typeMapping: bytes ? BYTES : TEXT, timeout };
}

/** The byte with which RESP marks a bulk string. */
const BULK_STRING = 0x24;
/** These replace the type mapping that the application set for its client. */
const TEXT = {};
const BYTES = { [BULK_STRING]: Buffer };

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

/** An object that stands for the present connection of the client. */
export function streamOf(client: NodeRedisClient): RedisStream {
  let known = streams.get(client);
  if (!known || known.epoch !== client.socketEpoch) {
    known = { epoch: client.socketEpoch, stream: { destroy: () => client.destroy() } };
    streams.set(client, known);
  }
  return known.stream;
}

const streams = new WeakMap<NodeRedisClient, { readonly epoch: number | undefined; readonly stream: RedisStream }>();
