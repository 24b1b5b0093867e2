import { isIP } from 'node:net';
import type { RedisCluster } from '../redis-client.js';

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
