import type { Stat } from 'node-zookeeper-client';
import type { TokenRange } from '../../../contracts/lock-backend.js';
import type { Children, ZooKeeperRequests } from '../session/zookeeper-requests.js';
import type { LockNode } from './lock-node.js';

/** How many tokens belong to one transaction of ZooKeeper. */
const RANGE = 64;

/**
 * Fencing tokens from the ids of ZooKeeper's transactions.
 *
 * A grant takes the tokens of the last transaction that created or deleted a child of the name's node (`pzxid`), as the
 * new owner reads it. The previous owner's node existed when that one read its own, and its deletion is a later
 * transaction, which the new owner has seen: so tokens rise with every grant, without a write. Further tokens belong to
 * a write to the owner's node, which precedes the deletion of that node, too.
 *
 * Where tokens above those are asked for, the data of the name's node says how much to add to all tokens of the name.
 */
export class FencingTokens {
  /** @param firstToken is added to each token */
  constructor(private readonly firstToken: number) {}

  /** The tokens of a grant. */
  async ofGrant(requests: ZooKeeperRequests, parent: string, { stat }: Children): Promise<TokenRange> {
    return this.of(stat.pzxid, stat.dataLength === 0 ? 0 : await this.raiseOf(requests, parent));
  }

  /** The newest token that may belong to the owner of a name; each later grant has larger ones. */
  async newest(requests: ZooKeeperRequests, parent: string, { stat }: Children, { mzxid }: Stat): Promise<number> {
    const latest = Buffer.compare(stat.pzxid, mzxid) > 0 ? stat.pzxid : mzxid;
    const { first, count } = this.of(latest, stat.dataLength === 0 ? 0 : await this.raiseOf(requests, parent));
    return first + count - 1;
  }

  /** Further tokens for the owner, from `least` on. Writes `data` to its node. */
  async mint(node: LockNode, least: number, data: Buffer): Promise<TokenRange> {
    const { parent, path = '', tokens } = node;
    const { requests } = node.session;
    const [{ mzxid }, raise] = await Promise.all([requests.setData(path, data), this.raiseOf(requests, parent)]);
    const minted = this.of(mzxid, raise);
    if (!tokens || least < minted.first + minted.count) return from(minted, least);
    const raised = raise + least - tokens.first;
    const stat = await requests.setBoth(path, data, parent, Buffer.from(String(raised)));
    return this.of(stat.mzxid, raised);
  }

  private async raiseOf(requests: ZooKeeperRequests, parent: string): Promise<number> {
    const { data } = await requests.data(parent);
    return Number(data?.toString() ?? 0);
  }

  /** @throws where they would exceed what a number can hold */
  private of(zxid: Buffer, raise: number): TokenRange {
    const id = zxid.readUInt32BE(0) * 2 ** 32 + zxid.readUInt32BE(4);
    const first = this.firstToken + raise + id * RANGE;
    if (Number.isSafeInteger(first + RANGE)) return { first, count: RANGE };
    throw new Error(`Transaction ${id} of ZooKeeper yields no fencing token below 2^53; lower "zookeeper.firstToken"`);
  }
}

function from({ first, count }: TokenRange, least: number): TokenRange {
  return least <= first ? { first, count } : { first: least, count: first + count - least };
}
