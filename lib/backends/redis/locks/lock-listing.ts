import type { ListedNames, ListRequest } from '../../../contracts/lock-backend.js';
import { redisGlob } from '../../../keys/redis-glob.js';
import { lockOption } from '../../../options/option-checks.js';
import { addressOf } from '../connection/server-address.js';
import { mastersOf, type RedisClient, type RedisNode } from '../redis-client.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import { lockGlob, lockName } from './redis-lock-keys.js';

/** How many steps of SCAN a page takes at most. */
const MOST_STEPS = 20;

/** Where a listing goes on: the address of a master, and the cursor of its SCAN. */
interface Place {
  /** Empty for the only server. */
  readonly address: string;
  readonly scan: string;
}

/**
 * One page of the names of locks, by SCAN: Redis serves other clients between the steps, each of which looks at `limit`
 * keys. A page ends with the step that completes `limit` names, or after `MOST_STEPS`. The masters of a Cluster follow
 * each other in the order of their addresses, so that a node may join or leave between two pages.
 */
export async function listLocks(
  scripts: ScriptRunner,
  { prefix, pattern, cursor, limit }: ListRequest,
): Promise<ListedNames> {
  const clientPrefix = scripts.client.options.keyPrefix ?? '';
  const matches = redisGlob(pattern);
  const glob = lockGlob(clientPrefix, prefix, pattern);
  const names = new Set<string>();
  let place: Place | undefined = placeOf(cursor);
  for (let step = 0; place && step < MOST_STEPS && names.size < limit; step++) {
    const from: Place = place;
    const { keys, next } = await scripts.command((client) => scanFrom(client, from, glob, limit));
    for (const key of keys) {
      const name = lockName(prefix, key.slice(clientPrefix.length));
      if (name !== undefined && matches(name)) names.add(name);
    }
    place = next;
  }
  return { names: [...names], cursor: place ? `${place.address}/${place.scan}` : '' };
}

/** @throws LockConfigError for a cursor of another origin */
function placeOf(cursor: string): Place {
  const [, address, scan] = /^(.*)\/(\d+)$/.exec(cursor || '/0') ?? [];
  if (address === undefined || scan === undefined) {
    throw lockOption.refused('cursor', cursor, 'the cursor of the page before');
  }
  return { address, scan };
}

async function scanFrom(client: RedisClient, { address, scan }: Place, glob: string, batch: number) {
  const nodes = mastersInOrder(client);
  const at = nodes.findIndex((node) => node.address >= address);
  const node = nodes[at];
  if (!node) return { keys: [] };
  const [after, keys] = await node.client.scan(node.address === address ? scan : '0', 'MATCH', glob, 'COUNT', batch);
  if (after !== '0') return { keys, next: { address: node.address, scan: after } };
  const following = nodes[at + 1];
  return { keys, ...(following && { next: { address: following.address, scan: '0' } }) };
}

function mastersInOrder(client: RedisClient): { readonly address: string; readonly client: RedisNode }[] {
  return mastersOf(client)
    .map((node) => ({ address: client.isCluster ? addressOf(node.options) : '', client: node }))
    .toSorted((one, other) => (one.address < other.address ? -1 : 1));
}
