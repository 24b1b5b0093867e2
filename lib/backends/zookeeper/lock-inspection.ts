import { Exception } from 'node-zookeeper-client';
import type { LockState, NameRequest } from '../../contracts/lock-backend.js';
import { MOST_WAITERS } from '../../contracts/lock-requests.js';
import type { ZooKeeperSession } from './zookeeper-session.js';
import { codeOf, type ZooKeeperRequests } from './zookeeper-requests.js';
import { type FencingTokens, parentPath, ticketOf, inOrder } from './lock-node.js';
import { childrenOf } from './lock-nodes.js';

/** Reads, and frees by force, what any process owns. */
export class LockInspection {
  constructor(
    private readonly root: string,
    private readonly tokens: FencingTokens,
  ) {}

  /** `null` when nobody owns the name. */
  async inspect({ requests, timeout }: ZooKeeperSession, request: NameRequest): Promise<LockState | null> {
    const parent = parentPath(this.root, request);
    for (;;) {
      try {
        const children = await requests.children(parent);
        const [first, ...waiting] = inOrder(children.names);
        if (first === undefined) return null;
        const seen = [first, ...waiting.slice(0, MOST_WAITERS)];
        const [own, ...others] = await Promise.all(
          seen.map((child) => unlessGone(requests.data(`${parent}/${child}`))),
        );
        if (!own) continue;
        return {
          owner: ticketOf(first),
          ...labelIn(own.data),
          ttl: timeout,
          fencingToken: await this.tokens.newest(requests, parent, children, own.stat),
          waiting: waiting.length,
          waiters: others.flatMap((node, index) =>
            node ? [{ ticket: ticketOf(waiting[index] as string), ...labelIn(node.data) }] : [],
          ),
        };
      } catch (error) {
        if (codeOf(error) === Exception.NO_NODE) return null;
        throw error;
      }
    }
  }

  /** Removes the node of the owner, and answers its ticket; `null` when nobody owned the name. */
  async forceRelease(requests: ZooKeeperRequests, request: NameRequest): Promise<string | null> {
    const parent = parentPath(this.root, request);
    for (;;) {
      const [first] = await childrenOf(requests, parent);
      if (first === undefined) return null;
      if (await unlessGone(requests.remove(`${parent}/${first}`).then(() => true))) return ticketOf(first);
    }
  }
}

function labelIn(data: Buffer | undefined): { label?: string } {
  return data && data.length > 0 ? { label: data.toString() } : {};
}

/** `undefined` where the node is not there. */
async function unlessGone<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (codeOf(error) !== Exception.NO_NODE) throw error;
    return undefined;
  }
}
