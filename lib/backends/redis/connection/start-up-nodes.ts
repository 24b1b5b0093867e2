import { isIP } from 'node:net';
import type { Cluster } from 'ioredis';

interface StartUpNode {
  readonly host: string;
  readonly port: number;
}

/** The nodes that a Cluster was given. ioredis declares the list as private, and no other member tells them. */
export function startUpNodes(cluster: Cluster): readonly StartUpNode[] {
  const nodes: unknown = Reflect.get(cluster, 'startupNodes');
  return Array.isArray(nodes) ? nodes.map(startUpNode) : [];
}

/**
 * Resolves to the first start-up node whose host name has no address, with the error of the lookup. ioredis drops this
 * error, and tries again without a message.
 */
export async function unresolvedNode(cluster: Cluster): Promise<(StartUpNode & { readonly error: Error }) | undefined> {
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

/** A node as ioredis takes it: a port, a URL, or options. */
function startUpNode(node: unknown): StartUpNode {
  if (typeof node === 'number') return { host: '127.0.0.1', port: node };
  if (typeof node === 'string') {
    const { hostname, port } = new URL(node.includes('://') ? node : `redis://${node}`);
    return { host: hostname || '127.0.0.1', port: Number(port || 6379) };
  }
  const { host, port } = (node ?? {}) as { host?: string; port?: string | number };
  return { host: host ?? '127.0.0.1', port: Number(port ?? 6379) };
}
