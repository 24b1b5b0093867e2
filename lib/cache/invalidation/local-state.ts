import type { FirstLevel } from '../values/first-level.js';
import type { Deletion } from './unconfirmed-deletions.js';

type Matches = (key: string) => boolean;

interface ReadsInFlight {
  /** Lets no caller join the read any more, and keeps its value out of the first level. */
  detach(key: string): void;
  detachMatching(matches: Matches): void;
  /** Keeps the value of the read out of the first level; callers still join the read. */
  outdate(key: string): void;
}

interface WaitersForLoads {
  wake(key: string): void;
  wakeMatching(matches: Matches): void;
}

/** What this process knows of cached values, and forgets when they change: in this process or in another one. */
export class LocalState {
  constructor(
    private readonly firstLevel: FirstLevel | undefined,
    private readonly flights: ReadsInFlight,
    private readonly waiters: WaitersForLoads,
    private readonly rests: { end(key: string): void },
    private readonly invalidatedTags: InvalidatedTags,
  ) {}

  forget(key: string): void {
    this.firstLevel?.delete(key);
    this.rests.end(key);
    this.flights.detach(key);
    this.waiters.wake(key);
  }

  /**
   * Forgets a value that any client has changed, or that has expired. Callers still join the read in flight: it may be
   * the load that replaces an expired value.
   */
  forgetValue(key: string): void {
    this.firstLevel?.delete(key);
    this.flights.outdate(key);
  }

  /** Reads in flight check the tags of their values when they end. */
  forgetTag(tag: string): void {
    this.invalidatedTags.add(tag);
    this.firstLevel?.deleteByTag(tag);
  }

  forgetMatching(matches: Matches): void {
    this.firstLevel?.deleteMatching(matches);
    this.flights.detachMatching(matches);
    this.waiters.wakeMatching(matches);
  }

  /** Forgets what the deletion covers. */
  forgetCovered({ key, tag, matches }: Deletion): void {
    if (key !== undefined) this.forget(key);
    if (tag !== undefined) this.forgetTag(tag);
    if (matches) this.forgetMatching(matches);
  }
}

/** How many tags are remembered by name. */
const MOST = 1_000;

/**
 * Remembers which tags were invalidated lately, as far as this process knows. The tags of a value are known only when
 * its read ends, which then asks whether one of them was invalidated since the read began.
 */
export class InvalidatedTags {
  /** The count at the last invalidation of each tag. */
  private readonly last = new Map<string, number>();
  /** Which tags were invalidated up to this count is not known any more. */
  private unknown = 0;
  /** Rises with each invalidation of a tag, and whenever one may have been missed. */
  count = 0;

  add(tag: string): void {
    if (this.last.size >= MOST) this.forget();
    this.count += 1;
    this.last.set(tag, this.count);
  }

  /** Counts every tag as invalidated: messages may have been missed. */
  addUnknown(): void {
    this.count += 1;
    this.forget();
  }

  /** Whether one of the tags may have been invalidated since the count was `since`. */
  anySince(tags: readonly string[], since: number): boolean {
    if (tags.length === 0 || since === this.count) return false;
    return since < this.unknown || tags.some((tag) => (this.last.get(tag) ?? 0) > since);
  }

  private forget(): void {
    this.last.clear();
    this.unknown = this.count;
  }
}
