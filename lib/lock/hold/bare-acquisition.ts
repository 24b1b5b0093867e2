import type { HeldLock } from './held-lock.js';
import { nearestOpen, type HoldScope } from './hold-scope.js';

/** The scope that a bare `acquire` was called in. */
export type Scope = HoldScope<BareAcquisition | undefined>;

/** A longer chain drops the acquisitions that have ended, whenever it has doubled since the last time. */
const LONGEST_CHAIN = 16;

/**
 * One bare `acquire`, in the chain of those of its async context: code that runs after it in that context, and what it
 * calls, may release by name what it got. It refers to the hold and never to the caller's `Lock`, which would otherwise
 * never be garbage-collected.
 */
export class BareAcquisition {
  private hold: HeldLock | undefined;
  private waiting = true;
  private length: number;
  private shortenAt: number;

  constructor(
    readonly names: readonly string[],
    private readonly around: Scope | undefined,
    /** The acquisition before it in its context. */
    public before: BareAcquisition | undefined,
  ) {
    this.length = before ? before.length + 1 : 1;
    this.shortenAt = before?.shortenAt ?? LONGEST_CHAIN;
    if (this.length > this.shortenAt) this.shorten();
  }

  /** The scope that it was called in, or else the nearest open one around that. */
  get scope(): Scope | undefined {
    return nearestOpen(this.around);
  }

  granted(hold: HeldLock): void {
    this.waiting = false;
    this.hold = hold;
  }

  /** Its hold was released, or it failed. */
  close(): void {
    this.waiting = false;
    this.hold = undefined;
  }

  /** The hold that it got, also after its loss; `undefined` while it waits, after the release, and if it failed. */
  get got(): HeldLock | undefined {
    return this.hold;
  }

  private get inUse(): boolean {
    return this.waiting || (this.hold !== undefined && !this.hold.isLost);
  }

  /**
   * Drops the ended acquisitions before it, except the one that follows directly on an acquisition of the same names in
   * use: by `holdOf`, it decides what the names mean. Other contexts share a part of the chain, and must find the same
   * from wherever they begin.
   */
  private shorten(): void {
    const chain: BareAcquisition[] = [];
    for (let each = this.before; each; each = each.before) chain.push(each);
    const lastInUse = new Set<string>();
    const kept: BareAcquisition[] = [];
    for (const each of chain.toReversed()) {
      const id = idOf(each.names);
      if (each.inUse) lastInUse.add(id);
      else if (!lastInUse.delete(id)) continue;
      kept.push(each);
    }
    let before: BareAcquisition | undefined;
    for (const each of kept) {
      each.before = before;
      before = each;
    }
    this.before = before;
    this.length = 1 + kept.length;
    this.shortenAt = Math.max(LONGEST_CHAIN, 2 * this.length);
  }
}

function idOf(names: readonly string[]): string {
  return names.length === 1 ? (names[0] as string) : names.join('\u0000');
}
