import { Exception } from 'node-zookeeper-client';
import type { ReleaseAnswer } from '../../../contracts/lock-backend.js';
import { codeOf, unless, type ZooKeeperRequests } from '../session/zookeeper-requests.js';
import { childPrefix } from './lock-paths.js';
import { inOrder } from './sequence.js';

/**
 * Removes the node of a ticket whose path this process does not know: the answer to its creation was lost, or its
 * session was. The ticket in the name of the node finds it.
 */
export async function removeStray(
  requests: ZooKeeperRequests,
  root: string,
  parent: string,
  ticket: string,
): Promise<ReleaseAnswer['status']> {
  // The request to create it may have gone to another server, whose writes this one has not seen yet.
  const [, order] = await Promise.all([requests.barrier(root), childrenOf(requests, parent)]);
  const strays = order.filter((child) => child.startsWith(childPrefix(ticket)));
  await Promise.all(strays.map((child) => requests.remove(`${parent}/${child}`).catch(unless(Exception.NO_NODE))));
  if (strays.length > 0 && strays[0] === order[0]) return 'released';
  return order.length === strays.length ? 'gone' : 'taken';
}

/** In order of arrival; none where nobody wants the name. */
export async function childrenOf(requests: ZooKeeperRequests, parent: string): Promise<readonly string[]> {
  try {
    return inOrder((await requests.children(parent)).names);
  } catch (error) {
    if (codeOf(error) !== Exception.NO_NODE) throw error;
    return [];
  }
}
