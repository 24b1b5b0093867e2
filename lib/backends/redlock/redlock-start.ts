import type { StartRequest } from '../../contracts/store.js';
import { checkServers, type Probe, type Rights } from '../redis/connection/server-check.js';
import type { RedlockNode } from './redlock-node.js';
import { NoQuorum, type NodeFailure, type Quorum } from './round.js';
import { randomUUID } from 'node:crypto';
import type { NameRequest, TicketRequest } from '../../contracts/lock-backend.js';
import { lockKey } from '../redis/locks/redis-lock-keys.js';

const UNIDENTIFIED =
  'does not tell which server it is: that it restarts, or is listed twice, goes unnoticed, and a second holder may get in; ' +
  'grant its ACL user +info';

/**
 * Checks every node: whether it takes writes, may evict locks, and grants the rights needed. Reports the nodes that
 * fail while a majority serves.
 *
 * @throws NoQuorum in one line when too few nodes can be used
 */
export async function startNodes(quorum: Quorum, request: StartRequest): Promise<void> {
  const { commandTimeout, report } = request;
  const checked = await Promise.all(quorum.nodes.map((node) => checkNode(node, request)));
  await quorum.meeting;
  for (const { identified, start, server } of quorum.nodes) {
    if (identified && !start) report({ level: 'warn', message: `${server} ${UNIDENTIFIED}` });
  }
  const failures = quorum.nodes.flatMap((node, index): readonly NodeFailure[] => {
    const error = checked[index];
    return error !== undefined || !quorum.restarts.mayGrant(node) ? [{ node, error }] : [];
  });
  if (failures.length === 0) return;
  const failure = new NoQuorum(quorum, failures);
  if (failures.length > quorum.spare) throw failure;
  report({ level: 'warn', message: `Redlock works with the other nodes: ${failure.message}` });

  async function checkNode(node: RedlockNode, { prefix }: StartRequest): Promise<unknown> {
    node.link.start(request);
    const rights = rightsOfRedlock(prefix, node.scripts.client.options.keyPrefix);
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${commandTimeout} ms`)), commandTimeout).unref();
    });
    try {
      await Promise.race([checkServers(node.scripts, rights, report), silence]);
      return undefined;
    } catch (error) {
      return error;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Every command of the scripts, each on a key of its type. What they write is deleted or expires after 1 ms. */
const PROBES: readonly Probe[] = [
  ['TIME'],
  ['SET', 1, '1', 'PX', '1'],
  ['GET', 1],
  ['EXISTS', 1],
  ['PTTL', 1],
  ['PEXPIRE', 1, '1'],
  ['DEL', 1],
  ['HSET', 3, '1', '1'],
  ['PEXPIRE', 3, '1'],
  ['HGET', 3, '1'],
  ['HGETALL', 3],
  ['HLEN', 3],
  ['HDEL', 3, '1'],
];

/** `clientPrefix` is what the client prepends to every key (`keyPrefix` of ioredis). */
export function rightsOfRedlock(prefix: string | undefined, clientPrefix = ''): Rights {
  return {
    whose: 'locks',
    evictable: false,
    keyPatterns: [`${clientPrefix}${prefix === undefined ? '' : `${prefix}:`}lock:{*`],
    probes: PROBES,
    keys: () => Object.values(redlockKeys({ prefix, name: `check:${randomUUID()}` })),
  };
}

/** The keys of a name: the lock, the first fencing token not yet issued, and the tickets that wait. */
export interface RedlockKeys {
  readonly lock: string;
  readonly fence: string;
  readonly wanted: string;
}

export function redlockKeys(request: NameRequest): RedlockKeys {
  const lock = lockKey(request);
  return { lock, fence: `${lock}:fence`, wanted: `${lock}:wanted` };
}

/** The keys of several names, one after the other, as ACQUIRE and MINT take them. */
export function acquireKeys({ prefix, names }: TicketRequest): readonly string[] {
  const keys: string[] = [];
  for (const name of names) {
    const { lock, fence, wanted } = redlockKeys({ prefix, name });
    keys.push(lock, fence, wanted);
  }
  return keys;
}

/** Those of RELEASE and RENEW: lock and wanted of each name. */
export function releaseKeys({ prefix, names }: TicketRequest): readonly string[] {
  const keys: string[] = [];
  for (const name of names) {
    const { lock, wanted } = redlockKeys({ prefix, name });
    keys.push(lock, wanted);
  }
  return keys;
}
