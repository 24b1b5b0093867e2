import type { Minted } from '../../contracts/lock-backend.js';
import { unexpected } from '../redis/connection/redis-script.js';
import type { NamesRequest } from './acquisition.js';
import { acquireKeys } from './redlock-keys.js';
import { type Quorum, ask, type Ask, type Tally } from './round.js';
import { firstAndWaiting } from './tallies.js';

/**
 * Another ticket reserves tokens at a minority of the nodes meanwhile at most: a second try is rare, a fifth is none.
 */
const MOST_TRIES = 5;

/**
 * Reserves `count` fencing tokens from `least` on for the ticket that owns the names: proposes the largest counter that
 * a node has stated until a majority accepts it. Any two majorities share a node, so that no range is reserved twice,
 * and each one is above those of earlier grants. Returns `null` when the ticket owns the names no more.
 */
export async function reserveTokens(
  quorum: Quorum,
  clock: TokenClock,
  request: Pick<NamesRequest, 'keys' | 'names' | 'ticket'>,
  least: number,
  count: number,
): Promise<Minted | null> {
  const { names, ticket } = request;
  const keys = acquireKeys(request.keys, names);
  let first = clock.propose(least);
  for (let tries = 0; tries < MOST_TRIES; tries++) {
    const args = [ticket, first, count, names.length];
    const send: Ask = (node, call) => {
      if (quorum.skips(node)) return 'away';
      if (node.isUnsettled(ticket)) return 'postponed';
      node.run(quorum.scripts.mint, keys, args, call);
      return undefined;
    };
    const outcome = await ask(quorum, new MintTally(quorum), send);
    if (outcome.status === 'reserved') return { first, count, waiting: outcome.waiting };
    if (outcome.status === 'not-owner') return null;
    first = Math.max(outcome.unissued, clock.propose(first));
  }
  throw new Error('the nodes accepted no fencing tokens, as other clients reserve them at the same time');
}

/**
 * Proposes fencing tokens: the time of the nodes in µs, as far as this process knows it, so that tokens rise even when
 * the counters at the nodes have expired, and waiters of all processes come in order. The nodes decide whether a
 * proposed token is above all earlier ones.
 */
export class TokenClock {
  /** What the monotonic clock (µs) lacks to the clock of the nodes. */
  private offset = performance.timeOrigin * 1_000;

  propose(least = 0): number {
    return Math.max(Math.floor(performance.now() * 1_000 + this.offset), least);
  }

  /** It was `micros` at the nodes at some time between the request, sent at `sentAt` (ms), and now. */
  heard(micros: number, sentAt: number): void {
    this.offset = Math.min(Math.max(this.offset, micros - performance.now() * 1_000), micros - sentAt * 1_000);
  }
}

/** - `reserved`: the proposed tokens; `refused`: tokens from `unissued` on are free; `not-owner`: of the names. */
type MintOutcome =
  | { readonly status: 'reserved'; readonly waiting: number }
  | { readonly status: 'not-owner' }
  | { readonly status: 'refused'; readonly unissued: number };

/** Counts the answers to MINT. */
class MintTally implements Tally<MintOutcome> {
  private reserved = 0;
  private foreign = 0;
  private refused = 0;
  private unissued = 0;
  private waiting = 0;

  constructor(private readonly quorum: Quorum) {}

  add(reply: unknown): void {
    const [unissued, waiting] = firstAndWaiting(reply);
    if (unissued < -1) throw unexpected(reply, 'a token');
    if (unissued === 0) {
      this.reserved += 1;
      this.waiting = Math.max(this.waiting, waiting);
    } else if (unissued < 0) this.foreign += 1;
    else {
      this.refused += 1;
      this.unissued = Math.max(this.unissued, unissued);
    }
  }

  outcome(open: number): MintOutcome | undefined {
    const { nodes, size, spare } = this.quorum;
    if (this.reserved >= size) return { status: 'reserved', waiting: this.waiting };
    if (this.foreign > spare) return { status: 'not-owner' };
    const failed = nodes.length - open - this.reserved - this.foreign - this.refused;
    const lost = this.reserved + open < size && failed <= spare;
    return lost ? { status: 'refused', unissued: this.unissued } : undefined;
  }
}
