import calculateSlot from 'cluster-key-slot';
import type { Notice } from '../../../contracts/start-request.js';
import { remedyOf } from '../connection/diagnosis.js';
import { RedisFailure } from '../connection/connection-state.js';
import { addressOf, serverOf } from '../connection/server-address.js';
import { isCluster, mastersOf, type RedisCluster, type RedisNode } from '../redis-client.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import { MissingRights } from './missing-rights.js';
import type { Rights } from './rights.js';

/** How many names are tried at most to find one in a slot of the node. */
const MOST_NAMES = 2_000;

interface ServerCheck {
  readonly rights: Rights;
  readonly report: (notice: Notice) => void;
  readonly inCluster: boolean;
}

/**
 * Checks a server, or each master of a Cluster, before it is used: whether it takes writes, whether it may evict what
 * must stay, and whether its user has the rights needed.
 *
 * @throws RedisFailure in one line, for the first server that cannot be used
 */
export async function checkServers(
  scripts: ScriptRunner,
  rights: Rights,
  report: (notice: Notice) => void,
): Promise<void> {
  await scripts.command((client) => client.ping());
  const { client } = scripts;
  await Promise.all(
    mastersOf(client).map((node) => {
      const keys = isCluster(client) ? keysOn(client, node, rights) : rights.keys();
      return checkServer(node, keys, { rights, report, inCluster: isCluster(client) });
    }),
  );
}

/** Why servers may drop locks that are held: a line for each that may. Rejects when one does not answer. */
export async function evictionHazards({ client }: ScriptRunner): Promise<readonly string[]> {
  const notices = await Promise.all(
    mastersOf(client).map(async (node) => evictionNotice(node, await node.info('memory'))),
  );
  return notices.filter((notice) => notice?.level === 'warn').map((notice) => (notice as Notice).message);
}

async function checkServer(
  node: RedisNode,
  keys: readonly string[] | undefined,
  { rights, report, inCluster }: ServerCheck,
): Promise<void> {
  const server = serverOf(node);
  if (!rights.evictable) await checkEviction(node, server, report);
  if (!keys) return;
  const missing = new MissingRights(node, rights, inCluster);
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

async function checkEviction(node: RedisNode, server: string, report: (notice: Notice) => void): Promise<void> {
  let memory: string;
  try {
    memory = await node.info('memory');
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    report({ level: 'debug', message: `${server} does not tell whether it may evict locks: INFO answers ${why}` });
    return;
  }
  const notice = evictionNotice(node, memory);
  if (notice) report(notice);
}

function evictionNotice(node: RedisNode, memory: string): Notice | undefined {
  const server = serverOf(node);
  const policy = /^maxmemory_policy:([\w-]+)/m.exec(memory)?.[1];
  if (policy === undefined) {
    return {
      level: 'debug',
      message: `${server} does not tell whether it may evict locks: INFO has no maxmemory_policy`,
    };
  }
  if (policy === 'noeviction') return undefined;
  const unlimited = /^maxmemory:0\r?$/m.test(memory);
  const remedy =
    'set it to noeviction (CONFIG SET maxmemory-policy noeviction), or keep the locks on a Redis of their own';
  const problem = `may evict held locks, as its maxmemory-policy is ${policy}`;
  const message = unlimited
    ? `${server} has no maxmemory and evicts nothing; with one it ${problem}: ${remedy}`
    : `${server} ${problem}: ${remedy}`;
  return { level: unlimited ? 'debug' : 'warn', message };
}

/** Keys in a slot of this node; `undefined` when it has no slots. */
function keysOn(
  { options: { keyPrefix = '' }, slots }: RedisCluster,
  { options }: RedisNode,
  rights: Rights,
): readonly string[] | undefined {
  const address = addressOf(options);
  for (let tries = 0; tries < MOST_NAMES; tries++) {
    const keys = rights.keys().map((key) => keyPrefix + key);
    if (slots[calculateSlot(keys[0] as string)]?.[0] === address) return keys;
  }
  return undefined;
}
