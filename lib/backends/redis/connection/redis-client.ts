import type { EventEmitter } from 'node:events';
import type { ClusterOptions, RedisOptions } from 'ioredis';
import type { Traffic } from './silence-guard.js';

/**
 * What the library uses of a client, in the form that ioredis has. A client of ioredis is used as it is, one of
 * node-redis through an adapter.
 */
export type RedisClient = RedisNode | RedisCluster;

/** A client of one server, or of the master that Sentinels name. */
export interface RedisNode extends RedisCommands {
  readonly options: NodeOptions;
  /** Another object after each reconnect. */
  readonly stream?: RedisStream | undefined;
  /** Of node-redis, where it is known; the guard of ioredis looks at its connection. */
  readonly traffic?: Traffic;
  time(): Promise<(number | string)[]>;
  /** Makes another connection to the same server, for messages. */
  duplicate(options: SubscriberOptions): RedisSubscriber;
}

export interface RedisCluster extends RedisCommands {
  readonly options: Partial<ClusterOptions>;
  /** By slot: the addresses of its master and its replicas. */
  readonly slots: string[][];
  nodes(role: 'master' | 'all'): RedisNode[];
  /** Of ioredis. */
  sendCommand?(...args: never[]): unknown;
}

/** A connection for messages. Emits `messageBuffer` with the channel and the message. */
export interface RedisSubscriber extends EventEmitter {
  readonly stream?: RedisStream | undefined;
  connect(): Promise<void>;
  call(command: string, ...args: (string | number)[]): Promise<unknown>;
  subscribe(...channels: string[]): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  disconnect(): void;
}

/** The connection of a client. */
export interface RedisStream {
  /** How much was received, of a socket. */
  readonly bytesRead?: number | undefined;
  destroy(why?: Error): unknown;
}

export type SubscriberOptions = Partial<RedisOptions>;

export type NodeOptions = Pick<
  RedisOptions,
  | 'enableOfflineQueue'
  | 'host'
  | 'keyPrefix'
  | 'maxRetriesPerRequest'
  | 'name'
  | 'path'
  | 'port'
  | 'retryStrategy'
  | 'sentinels'
  | 'socketTimeout'
  | 'tls'
  | 'username'
>;

/**
 * Whether what nobody waits for may be sent: not after QUIT, when Redis closes the connection, and ioredis would print
 * that it failed.
 */
export function isOpen(client: RedisClient): boolean {
  return client.status === 'ready' && Reflect.get(client, 'manuallyClosing') !== true;
}

export function isCluster(client: RedisClient): client is RedisCluster {
  return client.isCluster;
}

/** The clients of all masters. */
export function mastersOf(client: RedisClient): readonly RedisNode[] {
  return isCluster(client) ? client.nodes('master') : [client];
}

/** What both kinds of clients do. The client puts its `keyPrefix` before the keys. */
interface RedisCommands extends EventEmitter {
  readonly isCluster: boolean;
  /** `undefined` for ioredis itself. */
  readonly library?: 'node-redis';
  /** Whether a connection of node-redis that falls silent stays, by its options. */
  readonly keepsSilent?: boolean;
  /** Of ioredis: `wait`, `connecting`, `connect`, `ready`, `close`, `reconnecting`, `disconnecting` or `end`. */
  readonly status: string;
  /** Not for lists of the application: those go to `call`. */
  evalsha(sha1: string, keys: number, ...rest: (string | number | Buffer)[]): Promise<unknown>;
  eval(lua: string, keys: number, ...rest: (string | number | Buffer)[]): Promise<unknown>;
  call(command: string, args: (string | number | Buffer)[]): Promise<unknown>;
  /** Resolves to bytes where the command alone would resolve to text. */
  callBuffer(command: string, args: (string | number | Buffer)[]): Promise<unknown>;
  ping(): Promise<string>;
  info(section: string): Promise<string>;
  get(key: string): Promise<string | null>;
  getBuffer(key: string): Promise<Buffer | null>;
  mgetBuffer(keys: string[]): Promise<(Buffer | null)[]>;
  set(key: string, value: string, unit: 'PX', ttl: number): Promise<unknown>;
  set(key: string, value: string, unit: 'PX', ttl: number, when: 'NX'): Promise<unknown>;
  del(key: string): Promise<number>;
  unlink(keys: string[]): Promise<number>;
  publish(channel: string, message: string): Promise<number>;
  /** With `true`, the client connects again. */
  disconnect(reconnect?: boolean): void;
}
