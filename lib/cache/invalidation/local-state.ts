import type { InvalidatedTags } from './invalidated-tags.js';
import type { Deletion } from './pending-deletions.js';

type Matches = (key: string) => boolean;

interface FirstLevelValues {
  delete(key: string): void;
  deleteByTag(tag: string): void;
  deleteMatching(matches: Matches): void;
}

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
    private readonly firstLevel: FirstLevelValues | undefined,
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
