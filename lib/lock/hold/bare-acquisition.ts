import type { HeldLock } from './held-lock.js';
import { nearestOpen, type HoldScope } from './hold-scope.js';

/** Acquisitions that are over are dropped from a chain that has more than this, and more than twice those in use. */
const LONGEST_CHAIN = 16;

/**
 * One bare `acquire` of an async context. What runs after it in that context, and in the calls that it makes, may
 * release by name what it got; each chain is that of one context. It refers to the hold and never to the `Lock` that
 * the caller has, which could else not be seen to be dropped.
 */
export class BareAcquisition {
  private hold: HeldLock | undefined;
  private waiting = true;
  private length: number;
  private shortenAt: number;

  constructor(
    readonly names: readonly string[],
    private readonly around: HoldScope | undefined,
    /** The one before it in its context. */
    public before: BareAcquisition | undefined,
  ) {
    this.length = before ? before.length + 1 : 1;
    this.shortenAt = before?.shortenAt ?? LONGEST_CHAIN;
    if (this.length > this.shortenAt) this.shorten();
  }

  /** The scope that it was made in, or the nearest one around that which is still open. */
  get scope(): HoldScope | undefined {
    return nearestOpen(this.around);
  }

  granted(hold: HeldLock): void {
    this.waiting = false;
    this.hold = hold;
  }

  /** Its hold was released, or it got none. */
  close(): void {
    this.waiting = false;
    this.hold = undefined;
  }

  /** What it got, also when that is lost; `undefined` before, once it is released, and when it got nothing. */
  get got(): HeldLock | undefined {
    return this.hold;
  }

  private get inUse(): boolean {
    return this.waiting || (this.hold !== undefined && !this.hold.isLost);
  }

  /**
   * Drops those before it that are over, but for the last one of a name that an earlier one has: it stands in front of
   * that.
   */
  private shorten(): void {
    const chain: BareAcquisition[] = [];
    for (let each = this.before; each; each = each.before) chain.push(each);
    const used = new Set(chain.filter(({ inUse }) => inUse).map(({ names }) => idOf(names)));
    const kept = chain.filter((each) => each.inUse || used.delete(idOf(each.names)));
    for (const [index, each] of [this, ...kept].entries()) each.before = kept[index];
    this.length = 1 + kept.length;
    this.shortenAt = Math.max(LONGEST_CHAIN, 2 * this.length);
  }
}

function idOf(names: readonly string[]): string {
  return names.length === 1 ? (names[0] as string) : names.join('\u0000');
}
