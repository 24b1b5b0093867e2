// What is known of locks from outside: the state of one (`LockInspection`), and the names of all (`listLocks`).

import type { ListedNames, ListRequest, LockState, WaitingTicket } from '../../../contracts/lock-backend.js';
import { MOST_WAITERS } from '../../../contracts/lock-requests.js';
import { redisGlob } from '../../../keys/redis-glob.js';
import { lockOption } from '../../../options/option-checks.js';
import { addressOf } from '../connection/connection-options.js';
import { scanOn } from '../connection/read-batch.js';
import { GET, leaseOf, type RedisInteger, redisScript } from '../connection/redis-script.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { READERS_NOW } from './queue.lua.js';
import type { LockKeys } from './redis-lock-keys.js';

/** Who has a lock and who waits for it, with the labels of their processes. */
export class LockInspection {
  /** Those that are being read: the locks of a page have few holders, and a round trip brings each label once. */
  private readonly labels = new Map<string, Promise<string | null>>();

  constructor(
    private readonly scripts: ScriptRunner,
    private readonly keys: LockKeys,
  ) {}

  async inspect(name: string): Promise<LockState | null> {
    const reply = (await this.scripts.run(INSPECT, this.keys.of(name), [])) as Reply;
    const [owner, ttl, unissued, waiting, readers, tickets = []] = reply;
    if (owner === undefined) return null;
    const [label, ...waiters] = await Promise.all([
      Number(readers) > 0 ? null : this.labelOf(owner),
      ...tickets.map(([ticket, mark]) => this.waiterOf(ticket, mark === '0' ? 'read' : 'write')),
    ]);
    return {
      owner,
      ...(Number(readers) > 0 && { readers: Number(readers) }),
      ...(label !== null && { label }),
      ttl: leaseOf(ttl),
      fencingToken: unissued ? Number(unissued) - 1 : null,
      waiting: Number(waiting),
      waiters,
    };
  }

  private async waiterOf(ticket: string, mode: 'read' | 'write'): Promise<WaitingTicket> {
    const label = await this.labelOf(ticket);
    return { ticket, mode, ...(label !== null && { label }) };
  }

  private async labelOf(ticket: string): Promise<string | null> {
    const process = /^(.+):\d+$/.exec(ticket)?.[1];
    if (process === undefined) return null;
    const key = this.keys.label(process);
    const known = this.labels.get(key);
    if (known) return known;
    const label = this.scripts.run(GET, [key], []) as Promise<string | null>;
    this.labels.set(key, label);
    try {
      return await label;
    } catch (error) {
      // A label that cannot be read is no reason to tell nothing.
      if (error instanceof Error && error.name === 'ReplyError') return null;
      throw error;
    } finally {
      this.labels.delete(key);
    }
  }
}

/** What `INSPECT` returns. */
type Reply = [
  owner?: string,
  ttl?: RedisInteger,
  unissued?: string,
  waiting?: RedisInteger,
  readers?: RedisInteger,
  waiters?: [ticket: string, mark: string][],
];

/**
 * Reads the state of a lock.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters.
 * Returns {owner, PTTL, first token not yet issued or an empty string, length of the queue, readers, waiters}, or an
 * empty list for a free lock. The owner is `readers` where they hold it. The waiters are those at the head of the
 * queue, in their order, each with its ticket and a `0` if it asks to read, without those that the queue drops when
 * their turn comes. LINDEX, because scripts of the queue need it as well: a user whose rights allow those can inspect.
 */
const INSPECT = redisScript(`
local owner = redis.call('GET', KEYS[1])
if not owner then return {} end
${READERS_NOW}
local count = 0
if shared(owner) then
  local _, readers = readers_in(owner)
  owner, count = 'readers', #readers
end
local waiters = {}
for place = 0, ${MOST_WAITERS - 1} do
  local ticket = redis.call('LINDEX', KEYS[3], place)
  if not ticket then break end
  local mark, alive = string.match(redis.call('HGET', KEYS[4], ticket) or '', '^(0?)(%d+)')
  if alive and tonumber(alive) > now then waiters[#waiters + 1] = {ticket, mark} end
end
local waiting = redis.call('LLEN', KEYS[3])
return {owner, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '', waiting, count, waiters}
`);

/**
 * One page of the names of locks, by SCAN: Redis serves other clients between the steps, each of which looks at `limit`
 * keys. A page ends with the step that completes `limit` names, or after `MOST_STEPS`. The masters of a Cluster follow
 * each other in the order of their addresses, so that a node may join or leave between two pages.
 */
export async function listLocks(
  scripts: ScriptRunner,
  lockKeys: LockKeys,
  { pattern, cursor, limit }: ListRequest,
): Promise<ListedNames> {
  const clientPrefix = scripts.client.options.keyPrefix ?? '';
  const matches = redisGlob(pattern);
  const glob = lockKeys.glob(clientPrefix, pattern);
  const names = new Set<string>();
  let place: Place | undefined = placeOf(cursor);
  for (let step = 0; place && step < MOST_STEPS && names.size < limit; step++) {
    const from: Place = place;
    const { keys, next } = await scanFrom(scripts, from, glob, limit);
    for (const key of keys) {
      const name = lockKeys.nameOf(key.slice(clientPrefix.length));
      if (name !== undefined && matches(name)) names.add(name);
    }
    place = next;
  }
  return { names: [...names], cursor: place ? `${place.address}/${place.scan}` : '' };
}

/** How many steps of SCAN a page takes at most. */
const MOST_STEPS = 20;

/** Where a listing goes on: the address of a master, and the cursor of its SCAN. */
interface Place {
  /** Empty for the only server. */
  readonly address: string;
  readonly scan: string;
}

/** @throws LockConfigError for a cursor of another origin */
function placeOf(cursor: string): Place {
  const [, address, scan] = /^(.*)\/(\d+)$/.exec(cursor || '/0') ?? [];
  if (address === undefined || scan === undefined) {
    throw lockOption.refused('cursor', cursor, 'the cursor of the page before');
  }
  return { address, scan };
}

async function scanFrom(scripts: ScriptRunner, { address, scan }: Place, glob: string, batch: number) {
  const nodes = await mastersInOrder(scripts);
  const at = nodes.findIndex((node) => node.address >= address);
  const node = nodes[at];
  if (!node) return { keys: [] };
  const from = node.address === address ? scan : '0';
  const [after, keys] = await scanOn(scripts, node.client, [from, 'MATCH', glob, 'COUNT', batch]);
  if (after !== '0') return { keys, next: { address: node.address, scan: after } };
  const following = nodes[at + 1];
  return { keys, ...(following && { next: { address: following.address, scan: '0' } }) };
}

async function mastersInOrder(scripts: ScriptRunner) {
  const { isCluster } = scripts.client;
  return (await scripts.masters())
    .map((node) => ({ address: isCluster ? addressOf(node.options) : '', client: node }))
    .toSorted((one, other) => (one.address < other.address ? -1 : 1));
}
