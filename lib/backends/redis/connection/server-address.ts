import type { Cluster, Redis, RedisOptions, SentinelAddress } from 'ioredis';
import type { RedisClient } from '../redis-client.js';
import { startUpNodes } from './start-up-nodes.js';

/** The server of a client, as messages name it; never with a password. */
export function serverOf(client: RedisClient): string {
  if (client.isCluster) {
    const cluster = client as Cluster;
    const known = cluster.nodes('all').map(({ options }) => options);
    return `Redis Cluster at ${(known.length > 0 ? known : startUpNodes(cluster)).map(addressOf).join(', ')}`;
  }
  const { options } = client as Redis;
  const { path, sentinels, name } = options;
  if (sentinels && sentinels.length > 0)
    return `Redis "${name}" of the Sentinels at ${sentinels.map(shown).join(', ')}`;
  return `Redis at ${path ?? addressOf(options)}`;
}

/** The name of a node in the events of a Cluster. */
export function addressOf({ host, port }: Pick<RedisOptions, 'host' | 'port'>): string {
  return `${host}:${port}`;
}

function shown({ host = 'localhost', port = 26_379 }: Partial<SentinelAddress>): string {
  return `${host}:${port}`;
}
