import type { RedisInteger } from '../../redis/scripting/redis-replies.js';
import type { Quorum } from './quorum.js';
import type { Tally } from './round.js';

/** What MINT returns for one call. */
export type MintReply = readonly [unissued: RedisInteger, waiting?: RedisInteger];

/** - `reserved`: the proposed tokens; `refused`: tokens from `unissued` on are free; `not-owner`: of the names. */
export type MintOutcome =
  | { readonly status: 'reserved'; readonly waiting: number }
  | { readonly status: 'not-owner' }
  | { readonly status: 'refused'; readonly unissued: number };

/** Counts the answers to MINT. */
export class MintTally implements Tally<MintReply, MintOutcome> {
  private reserved = 0;
  private foreign = 0;
  private refused = 0;
  private unissued = 0;
  private waiting = 0;

  constructor(private readonly quorum: Quorum) {}

  add([first, waiting]: MintReply): void {
    const unissued = Number(first);
    if (unissued === 0) {
      this.reserved += 1;
      this.waiting = Math.max(this.waiting, Number(waiting));
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
