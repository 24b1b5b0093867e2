import type { Pending } from '../../contracts/store.js';
import type { TagStamp } from '../values/envelope.js';
import type { InvalidatedTags } from './invalidations.js';

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

/** A deletion at the store, and what it covers. */
export interface Deletion {
  /** Names the deletion with its key or tag, for log lines. */
  readonly what: string;
  /** Names the deletion in errors, which name the key themselves. */
  readonly operation: string;
  /** A later deletion with the same name replaces this one. */
  readonly name: string;
  readonly key?: string;
  /** Whether it only deletes the value of `key`; any other deletion of the key then covers it. */
  readonly plain?: boolean;
  readonly tag?: string;
  /** Which keys it covers, if it scans all keys. */
  readonly matches?: (key: string) => boolean;
  send(): Pending<unknown>;
}

/** The deletions that the store has not confirmed, by what they cover. */
export class PendingDeletions {
  private readonly byName = new Map<string, Deletion>();
  private readonly byKey = new Map<string, Set<Deletion>>();
  /** Deletions that cover more than one key: every read is compared with them. */
  private readonly byTag = new Set<Deletion>();
  private readonly bySweep = new Set<Deletion>();

  get size(): number {
    return this.byName.size;
  }

  /** The deletions that scan all keys. */
  get sweeps(): readonly Deletion[] {
    return [...this.bySweep];
  }

  /** The deletions that take one step each. */
  get steps(): readonly Deletion[] {
    return [...this.byName.values()].filter(({ matches }) => matches === undefined);
  }

  get hasSteps(): boolean {
    return this.byName.size > this.bySweep.size;
  }

  get first(): Deletion | undefined {
    return this.byName.values().next().value;
  }

  has({ name }: Deletion): boolean {
    return this.byName.has(name);
  }

  includes(deletion: Deletion): boolean {
    return this.byName.get(deletion.name) === deletion;
  }

  /** The deletions that this one makes superfluous. */
  coveredBy({ name, key }: Deletion): readonly Deletion[] {
    if (this.byName.size === 0) return [];
    const same = this.byName.get(name);
    const plain = this.ofKey(key).filter((each) => each.plain && each !== same);
    return same ? [same, ...plain] : plain;
  }

  ofKey(key: string | undefined): readonly Deletion[] {
    if (key === undefined) return [];
    const deletions = this.byKey.get(key);
    return deletions ? [...deletions] : [];
  }

  add(deletion: Deletion): void {
    const { name, key, tag, matches } = deletion;
    this.delete(this.byName.get(name));
    this.byName.set(name, deletion);
    if (tag !== undefined) this.byTag.add(deletion);
    if (matches) this.bySweep.add(deletion);
    if (key === undefined) return;
    const ofKey = this.byKey.get(key);
    if (ofKey) ofKey.add(deletion);
    else this.byKey.set(key, new Set([deletion]));
  }

  /** Removes this deletion, but not one that has replaced it. */
  delete(deletion: Deletion | undefined): void {
    if (!deletion || !this.includes(deletion)) return;
    const { name, key } = deletion;
    this.byName.delete(name);
    this.byTag.delete(deletion);
    this.bySweep.delete(deletion);
    if (key === undefined) return;
    const ofKey = this.byKey.get(key);
    ofKey?.delete(deletion);
    if (ofKey?.size === 0) this.byKey.delete(key);
  }

  /** The deletion that covers the key: its value must not be read. */
  covering(key: string): Deletion | undefined {
    if (this.byName.size === 0) return undefined;
    const [ofKey] = this.byKey.get(key) ?? [];
    if (ofKey) return ofKey;
    for (const deletion of this.bySweep) if (deletion.matches?.(key)) return deletion;
    return undefined;
  }

  /** The deletion that covers one of the tags: a value with it must not be read. */
  coveringTags(tags: TagStamp | undefined): Deletion | undefined {
    if (!tags) return undefined;
    for (const deletion of this.byTag) {
      if (deletion.tag !== undefined && Object.hasOwn(tags, deletion.tag)) return deletion;
    }
    return undefined;
  }
}

/** The name of the deletion of one key. `token` is that of the barrier which it begins or lifts. */
export function keyDeletion(key: string, token = ''): string {
  return `k${token}:${key}`;
}
