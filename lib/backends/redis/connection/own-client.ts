import type { Redis, RedisOptions } from 'ioredis';
import { backoff } from '../../../timing/clock.js';
import type { EventEmitter } from 'node:events';
import { isIP } from 'node:net';
import { ioredis, type ConnectionOption } from './ioredis.js';
import type { RedisCluster } from './redis-client.js';

/** A command waits for one reconnect and then fails, so that its caller learns soon that Redis is down. */
const OWN_CLIENT = {
  maxRetriesPerRequest: 1,
  retryStrategy: reconnectDelay,
  connectTimeout: 5_000,
  sentinelCommandTimeout: 5_000,
  // How long a client that is reconnecting keeps the process alive after it was closed.
  disconnectTimeout: 500,
} satisfies RedisOptions;

const REPLIES = { replyMapping: 'legacy' } as const;

/** Milliseconds until the next connection attempt: at most half a second, with jitter. */
export function reconnectDelay(attempt: number): number {
  return backoff(attempt, 25, 500) * (0.5 + Math.random() / 2);
}

/** @throws the option's ConfigError where ioredis is not installed */
export function createRedisClient(connection: RedisOptions | string, option: ConnectionOption): Redis {
  const { Redis } = ioredis(option);
  if (typeof connection === 'string') return new Redis(connection, { ...OWN_CLIENT, ...REPLIES });
  return new Redis({ ...OWN_CLIENT, ...connection, ...REPLIES });
}

/**
 * Raises the number of listeners above which Node.js warns of a leak: several modules may share one client. Returns
 * what lowers it again. A limit of 0 or `Infinity`, which never warns, stays.
 */
export function allowListeners(
  emitter: Pick<EventEmitter, 'getMaxListeners' | 'setMaxListeners'>,
  more: number,
): () => void {
  const change = (by: number) => {
    const most = emitter.getMaxListeners();
    // The application may set another limit at any time.
    if (most !== Infinity && most > Math.max(0, -by)) emitter.setMaxListeners(most + by);
  };
  const before = emitter.getMaxListeners();
  if (before === 0 || before === Infinity) return () => {};
  change(more);
  return () => change(-more);
}

interface StartUpNode {
  readonly host: string;
  readonly port: number;
}

/**
 * The nodes that a Cluster was constructed with. ioredis declares the list as private and has no public member for it.
 */
export function startUpNodes(cluster: RedisCluster): readonly StartUpNode[] {
  const nodes: unknown = Reflect.get(cluster, 'startupNodes');
  return Array.isArray(nodes) ? nodes.map(startUpNode) : [];
}

/**
 * Resolves to the first start-up node whose host name cannot be resolved, with the error of the lookup. ioredis drops
 * this error and retries without a message.
 */
export async function unresolvedNode(
  cluster: RedisCluster,
): Promise<(StartUpNode & { readonly error: Error }) | undefined> {
  const { dnsLookup, useSRVRecords } = cluster.options;
  if (!dnsLookup || useSRVRecords) return undefined;
  const named = startUpNodes(cluster).filter(({ host }) => isIP(host) === 0);
  const errors = await Promise.all(
    named.map(
      ({ host }) => new Promise<Error | null | undefined>((resolve) => dnsLookup(host, (error) => resolve(error))),
    ),
  );
  const index = errors.findIndex(Boolean);
  const [node, error] = [named[index], errors[index]];
  return node && error ? { ...node, error } : undefined;
}

/** A node in one of the forms that ioredis takes: a port, a URL, or options. */
function startUpNode(node: unknown): StartUpNode {
  if (typeof node === 'number') return { host: '127.0.0.1', port: node };
  if (typeof node === 'string') {
    const { hostname, port } = new URL(node.includes('://') ? node : `redis://${node}`);
    return { host: hostname || '127.0.0.1', port: Number(port || 6379) };
  }
  const { host, port } = (node ?? {}) as { host?: string; port?: string | number };
  return { host: host ?? '127.0.0.1', port: Number(port ?? 6379) };
}
