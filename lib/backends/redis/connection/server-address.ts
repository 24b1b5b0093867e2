import type { Cluster, Redis, SentinelAddress } from 'ioredis';
import type { RedisClient } from '../redis-client.js';

/** Which server a client leads to, as messages name it; without password. */
export function serverOf(client: RedisClient): string {
  if (client.isCluster) {
    const nodes = (client as Cluster).nodes('all').map(({ options }) => `${options.host}:${options.port}`);
    return nodes.length === 0 ? 'Redis Cluster (no node known)' : `Redis Cluster at ${nodes.join(', ')}`;
  }
  const { host, port, path, sentinels, name } = (client as Redis).options;
  if (sentinels && sentinels.length > 0)
    return `Redis "${name}" of the Sentinels at ${sentinels.map(shown).join(', ')}`;
  return `Redis at ${path ?? `${host}:${port}`}`;
}

function shown({ host = 'localhost', port = 26_379 }: Partial<SentinelAddress>): string {
  return `${host}:${port}`;
}
