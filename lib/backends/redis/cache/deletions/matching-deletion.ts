import type { Cluster, Redis } from 'ioredis';
import type { DeleteMatchingRequest } from '../../../../contracts/cache-store.js';
import type { RedisClient } from '../../redis-client.js';
import { integerOf } from '../../scripting/redis-replies.js';
import type { RedisCacheKeys } from '../redis-cache-keys.js';

/** How often a scan is begun anew because its connection broke. */
const MOST_SCANS = 5;

/**
 * Deletes the values of all keys that match, on every master of a Cluster, and answers how many there were.
 *
 * First the leases, so that no load which is under way now can store what it read before; then the values, which
 * include those that were stored while the leases were looked for. SCAN promises to return what was there all the time,
 * and nothing else.
 *
 * @throws Error of ioredis; what was deleted by then stays deleted. While slots move from one master to another, SCAN
 * may miss keys.
 */
export async function deleteMatching(
  client: RedisClient,
  keys: RedisCacheKeys,
  { match, batch, spares }: DeleteMatchingRequest,
): Promise<number> {
  const { leases, values } = keys.globs(match);
  await deleteAll(client, leases, batch);
  return deleteAll(client, values, batch, spares && ((name) => spares(keys.keyOf(name))));
}

type Spares = ((name: string) => boolean) | undefined;

async function deleteAll(client: RedisClient, glob: string, batch: number, spares?: Spares): Promise<number> {
  const nodes = client.isCluster ? (client as Cluster).nodes('master') : [client as Redis];
  const deleted = await Promise.all(nodes.map((node) => deleteOn(node, client, glob, batch, spares)));
  return deleted.reduce((sum, count) => sum + count, 0);
}

/**
 * A cursor is of no use to another server, nor to the same one after it was started again: each connection has a stream
 * of its own.
 */
async function deleteOn(
  node: Redis,
  client: RedisClient,
  glob: string,
  batch: number,
  spares: Spares,
): Promise<number> {
  let deleted = 0;
  for (let scan = 1; scan <= MOST_SCANS; scan++) {
    let cursor = '0';
    let stream: Redis['stream'] | undefined;
    do {
      const [next, found] = await node.scan(cursor, 'MATCH', glob, 'COUNT', batch);
      stream ??= node.stream;
      deleted += await unlink(client, spares ? found.filter((name) => !spares(name)) : found);
      cursor = next;
    } while (cursor !== '0' && node.stream === stream);
    if (node.stream === stream) return deleted;
  }
  throw new Error(`The connection broke in each of ${MOST_SCANS} scans for ${glob}; delete again`);
}

/** SCAN answers with the `keyPrefix` of the client, which puts it before the keys of UNLINK itself. */
async function unlink(client: RedisClient, found: readonly string[]): Promise<number> {
  const prefix = client.options.keyPrefix ?? '';
  const keys = found.map((key) => key.slice(prefix.length));
  if (keys.length === 0) return 0;
  if (!client.isCluster) return integerOf(await client.unlink(keys));
  // Through the Cluster and not the node: a slot may have moved since the scan.
  const counts = await Promise.all(keys.map((key) => client.unlink(key)));
  return counts.reduce((sum, count) => sum + integerOf(count), 0);
}
