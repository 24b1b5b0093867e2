// Deletions of many keys: at once, of all that match, and of names later.

import type { DeleteMatchingRequest, ScheduledDeletions } from '../../../contracts/cache-store.js';
import { inOrder, scanOn } from '../connection/read-batch.js';
import type { RedisNode } from '../connection/redis-client.js';
import { UNLINK, integerOf, type RedisInteger } from '../connection/redis-script.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { CLAIM_DELETIONS, FORGET_DELETIONS, RENEW_DELETIONS, SCHEDULE_DELETIONS } from './deletions.lua.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';

/**
 * Deletes the values of all keys that match, on every master of a Cluster, and resolves to their number.
 *
 * Deletes the load leases first, so that no load under way can store what it read before; then the values, including
 * those stored during the scan for leases. SCAN returns at least the keys that exist from its beginning to its end, but
 * may miss keys of slots that are being migrated.
 *
 * @throws the error of the client; the keys deleted by then stay deleted
 */
export async function deleteMatching(
  scripts: ScriptRunner,
  keys: RedisCacheKeys,
  { match, batch, spares }: DeleteMatchingRequest,
): Promise<number> {
  const { leases, values } = keys.globs(match);
  await deleteAll(scripts, leases, batch);
  return deleteAll(scripts, values, batch, spares && ((name) => spares(keys.keyOf(name))));
}

/** How many scans of one node are started, one after the other, because the connection broke. */
const MOST_SCANS = 5;

type Spares = ((name: string) => boolean) | undefined;

async function deleteAll(scripts: ScriptRunner, glob: string, batch: number, spares?: Spares): Promise<number> {
  const masters = await scripts.masters();
  const deleted = await Promise.all(masters.map((node) => deleteOn(node, scripts, glob, batch, spares)));
  return deleted.reduce((sum, count) => sum + count, 0);
}

/**
 * Deletes on one node. A cursor is valid on one server until it restarts, so a new connection (another `stream`) needs
 * a new scan.
 */
async function deleteOn(
  node: RedisNode,
  scripts: ScriptRunner,
  glob: string,
  batch: number,
  spares: Spares,
): Promise<number> {
  let deleted = 0;
  for (let scan = 1; scan <= MOST_SCANS; scan++) {
    let cursor = '0';
    let stream: RedisNode['stream'];
    do {
      const [next, found] = await scanOn(scripts, node, [cursor, 'MATCH', glob, 'COUNT', batch, 'TYPE', 'string']);
      stream ??= node.stream;
      deleted += await unlink(node, scripts, spares ? found.filter((name) => !spares(name)) : found);
      cursor = next;
    } while (cursor !== '0' && node.stream === stream);
    if (node.stream === stream) return deleted;
  }
  throw new Error(`The connection broke in each of ${MOST_SCANS} scans for ${glob}; delete again`);
}

/**
 * The keys that SCAN returns include the `keyPrefix` of the client, which the client prepends to the keys of UNLINK
 * itself.
 */
async function unlink(node: RedisNode, scripts: ScriptRunner, found: readonly string[]): Promise<number> {
  const { client } = scripts;
  const prefix = client.options.keyPrefix ?? '';
  const keys = found.map((key) => key.slice(prefix.length));
  if (keys.length === 0) return 0;
  if (!client.isCluster) return integerOf(await inOrder(scripts, node, () => client.unlink(keys)));
  // Sent through the Cluster rather than to the node: the slot may have moved since the scan.
  const counts = await Promise.all(keys.map(async (key) => integerOf(await scripts.run(UNLINK, [key], []))));
  return counts.reduce((sum, count) => sum + count, 0);
}

/**
 * Uses the one key of the cache that never expires: a deletion that falls due while no process runs is carried out by
 * the next one.
 */
export class RedisScheduledDeletions implements ScheduledDeletions {
  constructor(
    private readonly scripts: ScriptRunner,
    private readonly keys: RedisCacheKeys,
  ) {}

  async schedule(names: readonly string[], delay: number): Promise<void> {
    await this.scripts.run(SCHEDULE_DELETIONS, [this.keys.scheduled], [this.keys.channel, delay, ...names]);
  }

  async claim(limit: number, claim: number): Promise<{ names: readonly string[]; next: number | null }> {
    const reply = await this.scripts.run(CLAIM_DELETIONS, [this.keys.scheduled], [limit, claim]);
    const [names, next] = reply as [string[], RedisInteger];
    return { names, next: Number(next) === -1 ? null : Number(next) };
  }

  async renew(names: readonly string[], claim: number): Promise<void> {
    await this.scripts.run(RENEW_DELETIONS, [this.keys.scheduled], [claim, ...names]);
  }

  async done(names: readonly string[]): Promise<void> {
    await this.scripts.run(FORGET_DELETIONS, [this.keys.scheduled], names);
  }
}
