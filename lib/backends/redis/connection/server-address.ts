import type { SentinelAddress } from 'ioredis';
import { isCluster, type NodeOptions, type RedisClient } from '../redis-client.js';
import { startUpNodes } from './start-up-nodes.js';

/** The server of a client as messages name it, without passwords. */
export function serverOf(client: RedisClient): string {
  if (isCluster(client)) {
    const known = client.nodes('all').map(({ options }) => options);
    return `Redis Cluster at ${(known.length > 0 ? known : startUpNodes(client)).map(addressOf).join(', ')}`;
  }
  const { options } = client;
  const { path, sentinels, name } = options;
  if (sentinels && sentinels.length > 0)
    return `Redis${name === undefined ? '' : ` "${name}"`} of the Sentinels at ${sentinels.map(shown).join(', ')}`;
  return `Redis at ${path ?? addressOf(options)}`;
}

/** The name of a node in the events of a Cluster. */
export function addressOf({ host, port }: Pick<NodeOptions, 'host' | 'port'>): string {
  return `${host}:${port}`;
}

function shown({ host = 'localhost', port = 26_379 }: Partial<SentinelAddress>): string {
  return `${host}:${port}`;
}
