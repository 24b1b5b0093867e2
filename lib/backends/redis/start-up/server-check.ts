import calculateSlot from 'cluster-key-slot';
import type { Cluster, Redis } from 'ioredis';
import type { Notice } from '../../../contracts/start-request.js';
import { remedyOf } from '../connection/diagnosis.js';
import { RedisFailure } from '../connection/connection-state.js';
import { addressOf, serverOf } from '../connection/server-address.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import { MissingRights } from './missing-rights.js';
import type { Rights } from './rights.js';

/** How many names are tried until one lies in a slot of a node. */
const MOST_NAMES = 2_000;

/**
 * Looks at a server, or at each master of a Cluster, before anything is asked of it: whether it may be written to, may
 * evict what is kept, and lets its user do what is needed.
 *
 * @throws RedisFailure in one line, of the first server that cannot be used
 */
export async function checkServers(
  scripts: ScriptRunner,
  rights: Rights,
  report: (notice: Notice) => void,
): Promise<void> {
  await scripts.command((client) => client.ping());
  const { client } = scripts;
  const nodes = client.isCluster ? (client as Cluster).nodes('master') : [client as Redis];
  await Promise.all(
    nodes.map((node) => {
      const keys = client.isCluster ? keysOn(client as Cluster, node, rights) : rights.keys();
      return checkServer(node, keys, rights, report);
    }),
  );
}

async function checkServer(
  node: Redis,
  keys: readonly string[] | undefined,
  rights: Rights,
  report: (notice: Notice) => void,
): Promise<void> {
  const server = serverOf(node);
  if (!rights.evictable) await checkEviction(node, server, report);
  if (!keys) return;
  const missing = new MissingRights(node, rights);
  await missing.look(keys);
  const [refusal] = missing.other;
  if (refusal !== undefined) {
    const remedy = remedyOf(new Error(refusal));
    throw new RedisFailure(
      `${server} refuses what ${rights.whose} write: ${refusal}${remedy === undefined ? '' : `; ${remedy}`}`,
    );
  }
  if (!missing.any) return;
  const username = node.options.username ?? 'default';
  const problem = `${server}: its ACL user "${username}" lacks rights needed for ${rights.whose}; run ACL SETUSER ${username} ${missing.grants}`;
  if (missing.vital) throw new RedisFailure(problem);
  report({
    level: 'warn',
    message: `${problem}. Until then messages do not arrive, and waiters are served more slowly`,
  });
}

async function checkEviction(node: Redis, server: string, report: (notice: Notice) => void): Promise<void> {
  let memory: string;
  try {
    memory = await node.info('memory');
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    report({ level: 'debug', message: `${server} does not tell whether it may evict locks: INFO answers ${why}` });
    return;
  }
  const policy = /^maxmemory_policy:([\w-]+)/m.exec(memory)?.[1];
  if (policy === undefined) {
    report({
      level: 'debug',
      message: `${server} does not tell whether it may evict locks: INFO has no maxmemory_policy`,
    });
  } else if (policy !== 'noeviction') {
    const unlimited = /^maxmemory:0\r?$/m.test(memory);
    const remedy =
      'set it to noeviction (CONFIG SET maxmemory-policy noeviction), or keep the locks on a Redis of their own';
    const problem = `may evict held locks, as its maxmemory-policy is ${policy}`;
    const message = unlimited
      ? `${server} has no maxmemory and evicts nothing; with one it ${problem}: ${remedy}`
      : `${server} ${problem}: ${remedy}`;
    report({ level: unlimited ? 'debug' : 'warn', message });
  }
}

/** Keys in a slot of this node; `undefined` where it has none. */
function keysOn(cluster: Cluster, { options }: Redis, rights: Rights): readonly string[] | undefined {
  const { keyPrefix = '' } = cluster.options;
  const address = addressOf(options);
  for (let tries = 0; tries < MOST_NAMES; tries++) {
    const keys = rights.keys().map((key) => keyPrefix + key);
    if (cluster.slots[calculateSlot(keys[0] as string)]?.[0] === address) return keys;
  }
  return undefined;
}
