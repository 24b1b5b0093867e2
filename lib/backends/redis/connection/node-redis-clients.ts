import { BackendRefusal } from '../../../contracts/store.js';
import type { NodeRedisConnection } from '../../../options/redis-connection.js';

/** What the library uses of node-redis 5 and 6, whose types an application without it does not have. */
export interface NodeRedisClient extends NodeRedisConnection {
  readonly isReady: boolean;
  readonly options?: NodeRedisOptions;
  /** Grows with each connection. */
  readonly socketEpoch?: number;
  connect(): Promise<unknown>;
  duplicate(overrides: object): NodeRedisClient;
  sendCommand(args: readonly CommandArgument[], options?: SendOptions): Promise<unknown>;
  subscribe(channels: string[], listener: MessageListener, bytes: true): Promise<void>;
  unsubscribe(channels: string[], listener: MessageListener, bytes: true): Promise<void>;
}

export interface NodeRedisSentinel extends NodeRedisConnection {
  getMasterNode(): NodeRedisAddress | undefined;
  getSentinelNode(): NodeRedisAddress | undefined;
  subscribe: NodeRedisClient['subscribe'];
  unsubscribe: NodeRedisClient['unsubscribe'];
}

export interface NodeRedisCluster extends NodeRedisConnection {
  readonly masters: readonly NodeRedisMaster[];
  readonly slots: readonly ({ readonly master: NodeRedisMaster } | undefined)[];
  nodeClient(node: NodeRedisMaster): Promise<NodeRedisClient>;
  sendCommand(
    firstKey: string | undefined,
    isReadonly: boolean,
    args: readonly CommandArgument[],
    options?: SendOptions,
  ): Promise<unknown>;
}

export interface NodeRedisMaster extends NodeRedisAddress {
  readonly address: string;
  readonly client?: NodeRedisClient | undefined;
}

export interface NodeRedisAddress {
  readonly host: string;
  readonly port: number;
}

interface NodeRedisOptions {
  readonly disableOfflineQueue?: boolean;
  readonly socket?: { readonly host?: string; readonly port?: number; readonly path?: string; readonly tls?: boolean };
  readonly username?: string;
}

export type CommandArgument = string | Buffer;

export type MessageListener = (message: Buffer | readonly Buffer[] | null, channel: Buffer) => void;

/** What replaces the command options that the application set for its client. */
export interface SendOptions {
  readonly typeMapping: Readonly<Record<number, unknown>>;
  /** How long (ms) the command may wait to be sent. */
  readonly timeout?: number | undefined;
  /** Removes the command while it waits to be sent. */
  readonly abortSignal?: AbortSignal;
}

/** Recognises a client of node-redis 5 or later (earlier ones have no `destroy`), but not a pool. */
export function isNodeRedis(value: unknown): value is NodeRedisConnection {
  if (typeof value !== 'object' || value === null) return false;
  const { isOpen, sendCommand, on, off, destroy } = value as Partial<NodeRedisConnection>;
  if (typeof isOpen !== 'boolean') return false;
  if ([sendCommand, on, off, destroy].some((method) => typeof method !== 'function')) return false;
  return !isNodeRedisPool(value);
}

export function isNodeRedisCluster(client: NodeRedisConnection): client is NodeRedisCluster {
  return 'nodeClient' in client;
}

export function isNodeRedisSentinel(client: NodeRedisConnection): client is NodeRedisSentinel {
  return 'getSentinelNode' in client;
}

/** The commands of a pool go over several connections, in no order. */
export function isNodeRedisPool(client: object): boolean {
  return 'totalClients' in client;
}

/** What node-redis 6 puts before each key, unless a command is sent raw as the library does. */
export function keyPrefixOf(client: NodeRedisConnection): string {
  const prefix: unknown = Reflect.get(client, '_keyPrefix');
  return typeof prefix === 'string' ? prefix : '';
}

/**
 * Calls `send` with the client of the master, and again where that lost its connection. Every command of a Sentinel
 * client passes here in node-redis 5 and 6, and nothing else says of which client it is.
 */
export function onMaster(
  sentinel: NodeRedisSentinel,
  send: (master: NodeRedisClient) => Promise<unknown>,
): Promise<unknown> {
  const execute = Reflect.get(sentinel, '_execute') as
    ((isReadonly: boolean, each: typeof send) => Promise<unknown>) | undefined;
  if (typeof execute === 'function') return execute.call(sentinel, false, send);
  const remedy = 'use one of these, or an ioredis client';
  return Promise.reject(
    new BackendRefusal(
      `The Sentinel client is none of node-redis 5 or 6, so that it hides lost connections: ${remedy}`,
    ),
  );
}
