import { createHash } from 'node:crypto';
import type { Stat } from 'node-zookeeper-client';
import type { TokenRange, TicketRequest } from '../../contracts/lock-backend.js';
import { processOf } from '../../contracts/lock-requests.js';
import type { PlaceOf } from '../../timing/brief-collections.js';
import type { Children, ZooKeeperRequests } from './zookeeper-requests.js';
import type { ZooKeeperSession } from './zookeeper-session.js';

/** A ticket at a name, and the path of the node below which the tickets of the name lie. */
export interface TicketAt extends TicketRequest {
  readonly parent: string;
}

/** The node of one ticket at one name, in the session that created it. */
export class LockNode implements TicketAt {
  readonly name: string;
  readonly ticket: string;
  readonly parent: string;
  /** What the path of the node begins with; ZooKeeper appends the sequence number. */
  readonly key: string;
  /** Set once the server has answered that it created the node. */
  path: string | undefined;
  /** Settles with the first answer to the ticket, or its failure. */
  entered: Promise<unknown> = Promise.resolve();
  /** The newest tokens of its grant; `undefined` while it waits. */
  tokens: TokenRange | undefined;
  /** When (monotonic, ms) it was granted. */
  grantedAt = 0;
  /** Present for a moment after the grant. */
  recent: PlaceOf<LockNode> | undefined;
  /** The path that it watches: of the node before it, or, while it is granted, its own. */
  watched: { readonly path: string; readonly listener: () => void } | undefined;

  constructor(
    readonly session: ZooKeeperSession,
    at: TicketAt,
  ) {
    this.name = at.name;
    this.ticket = at.ticket;
    this.parent = at.parent;
    this.key = nodeKey(at);
  }

  /** What the name of the node begins with. */
  get childPrefix(): string {
    return childPrefix(this.ticket);
  }

  /** What its process is known by. */
  get process(): string {
    return processOf(this.ticket);
  }

  /** Calls `listener` once when the node at `path` is deleted; answers `false` if it is gone already. */
  watch(path: string, listener: () => void): Promise<boolean> {
    if (this.watched?.path === path) return this.session.deletions.add(path, this.watched.listener);
    this.unwatch();
    this.watched = { path, listener };
    return this.session.deletions.add(path, listener);
  }

  unwatch(): void {
    if (this.watched) this.session.deletions.remove(this.watched.path, this.watched.listener);
    this.watched = undefined;
  }
}

export function nodeKey({ parent, ticket }: TicketAt): string {
  return `${parent}/${childPrefix(ticket)}`;
}

/** The longest name (in characters of its encoded form) that stands in a path; a longer one is hashed. */
const LONGEST_NAME = 200;

/** Makes the path of the node below which the tickets of a name lie. */
export function parentPaths(root: string, prefix: string | undefined): (name: string) => string {
  // ":" divides, because every ":" of prefix and name is encoded.
  const beginning = `${root}/${prefix === undefined ? '' : `${encoded(prefix)}:`}`;
  return (name) => beginning + encoded(name);
}

/** What the name of a ticket's node begins with. */
export function childPrefix(ticket: string): string {
  return `${encodeURIComponent(ticket)}-lock-`;
}

/** Marks the node of a ticket that does not wait, and is removed at once where the name is taken. */
export const ONCE = 'once-';

/** Whether the node waits if it is not the first. */
export function waitsAt(child: string): boolean {
  return !child.slice(child.lastIndexOf('-lock-')).startsWith(`-lock-${ONCE}`);
}

/** The ticket of a node; the name of the node itself if it is not one of ours. */
export function ticketOf(child: string): string {
  const end = child.lastIndexOf('-lock-');
  if (end === -1) return child;
  try {
    return decodeURIComponent(child.slice(0, end));
  } catch {
    return child;
  }
}

/**
 * The children with a number, in order of arrival. The number has 32 bits and a sign: 2147483647 precedes -2147483648.
 */
export function inOrder(children: readonly string[]): string[] {
  if (children.length <= 1) return children.filter((child) => sequenceOf(child) !== undefined);
  const numbered: { child: string; sequence: number }[] = [];
  for (const child of children) {
    const sequence = sequenceOf(child);
    if (sequence !== undefined) numbered.push({ child, sequence });
  }
  return numbered.toSorted((one, other) => (one.sequence - other.sequence) | 0).map(({ child }) => child);
}

/**
 * Whether the numbers below the parent node come to their end: servers from 3.6 on do not count beyond 2147483647, and
 * would give all further nodes that number. A new parent begins with 0.
 */
export function isWorn(child: string): boolean {
  const sequence = sequenceOf(child) ?? 0;
  return sequence < 0 || sequence >= 2 ** 30;
}

/** How many tokens belong to one transaction of ZooKeeper. */
const TOKENS = 64;

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
    if (!tokens || least < minted.first + minted.count) return rangeFrom(minted, least);
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
    const first = this.firstToken + raise + id * TOKENS;
    if (Number.isSafeInteger(first + TOKENS)) return { first, count: TOKENS };
    throw new Error(`Transaction ${id} of ZooKeeper yields no fencing token below 2^53; lower "zookeeper.firstToken"`);
  }
}

/** Percent-encoded; a node cannot be named "." or "..", and "~" begins what is hashed. */
function encoded(text: string): string {
  const plain = encodeURIComponent(text).replace(/^[.~]/, (first) => (first === '.' ? '%2E' : '%7E'));
  if (plain.length <= LONGEST_NAME) return plain;
  return `~${createHash('sha256').update(text).digest('hex')}`;
}

const SEQUENCE = /-(-?\d{10})$/;

/** The number that ZooKeeper has appended to the name of the node; `undefined` if there is none. */
function sequenceOf(child: string): number | undefined {
  const digits = SEQUENCE.exec(child)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

function rangeFrom({ first, count }: TokenRange, least: number): TokenRange {
  return least <= first ? { first, count } : { first: least, count: first + count - least };
}
