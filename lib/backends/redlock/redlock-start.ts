import type { StartRequest } from '../../contracts/start-request.js';
import { checkServers } from '../redis/start-up/server-check.js';
import type { RedlockNode } from './nodes/redlock-node.js';
import { rightsOfRedlock } from './redlock-rights.js';
import { NoQuorum, type NodeFailure } from './rounds/no-quorum.js';
import type { Quorum } from './rounds/quorum.js';

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
