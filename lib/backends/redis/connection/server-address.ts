import type { Cluster, Redis, RedisOptions, SentinelAddress } from 'ioredis';
import type { RedisClient } from '../redis-client.js';

/** Which server a client leads to, as messages name it; without password. */
export function serverOf(client: RedisClient): string {
  if (client.isCluster) {
    const nodes = (client as Cluster).nodes('all').map(({ options }) => addressOf(options));
    return nodes.length === 0 ? 'Redis Cluster (no node known)' : `Redis Cluster at ${nodes.join(', ')}`;
  }
  const { options } = client as Redis;
  const { path, sentinels, name } = options;
  if (sentinels && sentinels.length > 0)
    return `Redis "${name}" of the Sentinels at ${sentinels.map(shown).join(', ')}`;
  return `Redis at ${path ?? addressOf(options)}`;
}

/** As a Cluster names its nodes. */
export function addressOf({ host, port }: Pick<RedisOptions, 'host' | 'port'>): string {
  return `${host}:${port}`;
}

function shown({ host = 'localhost', port = 26_379 }: Partial<SentinelAddress>): string {
  return `${host}:${port}`;
}
