import type { Quorum } from './quorum.js';
import type { Tally } from './round.js';

/** - `reserved`: the proposed tokens; `refused`: tokens from `unissued` on are free; `not-owner`: of the names. */
export type MintOutcome =
  | { readonly status: 'reserved' }
  | { readonly status: 'not-owner' }
  | { readonly status: 'refused'; readonly unissued: number };

/** Counts the answers to MINT. */
export class MintTally implements Tally<number, MintOutcome> {
  private reserved = 0;
  private foreign = 0;
  private refused = 0;
  private unissued = 0;

  constructor(private readonly quorum: Quorum) {}

  add(reply: number): void {
    if (reply === 0) this.reserved += 1;
    else if (reply < 0) this.foreign += 1;
    else {
      this.refused += 1;
      this.unissued = Math.max(this.unissued, reply);
    }
  }

  outcome(open: number): MintOutcome | undefined {
    const { nodes, size, spare } = this.quorum;
    if (this.reserved >= size) return { status: 'reserved' };
    if (this.foreign > spare) return { status: 'not-owner' };
    const failed = nodes.length - open - this.reserved - this.foreign - this.refused;
    const lost = this.reserved + open < size && failed <= spare;
    return lost ? { status: 'refused', unissued: this.unissued } : undefined;
  }
}
