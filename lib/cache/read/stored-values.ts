import type { TagState } from '../../contracts/cache-store.js';
import { textOf, type Warnings } from '../../errors/limited-log.js';
import type { StepOrder } from '../invalidation/step-order.js';
import type { UnconfirmedDeletions } from '../invalidation/unconfirmed-deletions.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { StoreCalls } from '../store/store-calls.js';
import { countedNumber, isExpired, isNothing, type Entry, type Envelopes, type TagStamp } from '../values/envelope.js';

/** A value found in the store or in the first level. */
export interface FoundValue {
  readonly value: unknown;
  /** The result of `revive`, if the options have one. */
  readonly revived?: Revived | undefined;
  /** Absent for a number that `incr` counts. */
  readonly entry: Entry | undefined;
  /** The stored bytes; absent if the value is from the first level. */
  readonly data?: Buffer;
  /** Since when one of its tags counts as softly expired, in ms of the wall clock. */
  readonly staleSince?: number;
}

/** What callers and loaders get of it. */
export function callerValue({ revived, value }: FoundValue): unknown {
  return revived ? revived.value : value;
}

/** A result of `revive`, which may be `undefined` itself. */
export interface Revived {
  readonly value: unknown;
}

/** How many bytes distinguish a value from the next one under its key: they include the time when it expires. */
const BEGINNING = 64;

/** At which share of misses a read asks for the load lease at once. */
const LIKELY = 0.25;
/** What one read weighs among the last ones. */
const WEIGHT = 1 / 16;
/** How many key templates and namespaces have a share of their own. */
const MOST_TEMPLATES = 1_000;

/** How many of the last reads found no value, by key template; without one, by namespace. */
export class MissShares {
  private readonly byTemplate = new Map<string, MissShare>();

  of({ template, tagPrefix }: EntrySettings): MissShare {
    const name = template ?? tagPrefix;
    const known = this.byTemplate.get(name);
    if (known) return known;
    // To begin anew costs a few round trips.
    if (this.byTemplate.size >= MOST_TEMPLATES) this.byTemplate.clear();
    const share = new MissShare();
    this.byTemplate.set(name, share);
    return share;
  }
}

/** The share of misses among the last reads; of two reads the later one weighs more. */
export class MissShare {
  isLikely = false;
  private share = 0;

  note(missed: boolean): void {
    this.share += ((missed ? 1 : 0) - this.share) * WEIGHT;
    this.isLikely = this.share >= LIKELY;
  }
}

/** Reads values from the store, after the changes that this process made before. */
export class StoredValues {
  constructor(
    private readonly calls: StoreCalls,
    private readonly stepOrder: StepOrder,
    private readonly unconfirmed: UnconfirmedDeletions,
    private readonly envelopes: Envelopes,
    private readonly warnings: Warnings,
  ) {}

  /** @throws CacheBackendError when Redis fails */
  read(key: string): Promise<Buffer | null> {
    return this.calls.run('read', key, () => this.calls.store.read(key));
  }

  /** Reads the stored data and the states of the tags in one round trip. @throws CacheBackendError when Redis fails */
  async readWithTags(key: string, tags: readonly string[]): Promise<[Buffer | null, readonly TagState[]]> {
    const changes = this.stepOrder.afterTags(tags);
    if (changes) await changes;
    return Promise.all([this.read(key), this.tagStates(key, tags)]);
  }

  /** The value in the stored data. Unreadable data counts as absent: another version of the application wrote it. */
  decode(key: string, data: Buffer): FoundValue | undefined {
    try {
      const entry = this.envelopes.open(data);
      if (entry) return { value: this.envelopes.valueOf(entry), entry, data };
      const value = countedNumber(data);
      return value === undefined ? undefined : { value, entry: undefined, data };
    } catch (error) {
      const why = whyUnreadable(error);
      this.warnings.warn(`The stored value of "${key}" cannot be read and counts as absent: ${why}`, 'unreadable');
      return undefined;
    }
  }

  /**
   * Checks the tags of the value: `undefined` if one of them was invalidated since the load, or a required one is
   * missing, as in a value that was stored before the code named the tag.
   *
   * @throws CacheBackendError when Redis fails, or has not confirmed a deletion of the value
   */
  async checkTags(key: string, found: FoundValue, required: readonly string[]): Promise<FoundValue | undefined> {
    const stamp: TagStamp = found.entry?.tags ?? {};
    const tags = Object.keys(stamp);
    if (!required.every((tag) => tags.includes(tag))) return undefined;
    if (tags.length === 0) return found;
    const changes = this.stepOrder.afterTags(tags);
    if (changes) await changes;
    const doubt = this.unconfirmed.doubtAbout(key, stamp);
    if (doubt) throw doubt;
    return withTagStates(found, tags, await this.tagStates(key, tags));
  }

  /** The result of `revive`; `undefined` if it throws, and the value then counts as absent. */
  revive(
    key: string,
    revive: NonNullable<EntrySettings['revive']>,
    stored: unknown,
  ): Revived | undefined | Promise<Revived | undefined> {
    const refuse = (error: unknown): undefined => {
      const line = `revive threw for the stored value of "${key}", which counts as absent: ${textOf(error)}`;
      this.warnings.warn(line, 'revive');
    };
    try {
      const value = revive(stored);
      return value instanceof Promise ? value.then((settled: unknown) => ({ value: settled }), refuse) : { value };
    } catch (error) {
      return refuse(error);
    }
  }

  private tagStates(key: string, tags: readonly string[]): Promise<readonly TagState[]> {
    return this.calls.run('read of the tags', key, () => this.calls.store.readTags(tags));
  }
}

/** Without what is in the value, which the messages of `JSON.parse` quote. */
function whyUnreadable(error: unknown): string {
  return error instanceof Error && error.name === 'SyntaxError' ? 'it is not valid JSON' : textOf(error);
}

/** The beginning of a stored value, by which the store recognises whether another one has replaced it. */
export function beginningOf(data: Buffer): Buffer {
  return data.subarray(0, BEGINNING);
}

/** The value with the states of its tags applied; `undefined` if one of them was invalidated since the load. */
export function withTagStates(
  found: FoundValue,
  tags: readonly string[],
  states: readonly TagState[],
): FoundValue | undefined {
  let staleSince: number | undefined;
  for (const [index, tag] of tags.entries()) {
    const state = states[index] ?? null;
    const version = found.entry?.tags?.[tag];
    if (version === undefined || state === null) return undefined;
    if (state === version) continue;
    if (typeof state === 'number' || !(version >= state.least && version <= state.version)) return undefined;
    if (version < state.version) staleSince = Math.min(staleSince ?? Infinity, state.version / 1_000);
  }
  return staleSince === undefined ? found : { ...found, staleSince };
}

/** A value without a required tag does not count: it was stored before the code named the tag. */
export function hasTags({ tags }: Entry, required: readonly string[]): boolean {
  return required.every((tag) => tags !== undefined && Object.hasOwn(tags, tag));
}

export function isFresh({ entry, staleSince }: FoundValue): boolean {
  if (staleSince !== undefined) return false;
  // Redis itself ends a value that is not kept beyond its ttl: clocks that differ then do no harm.
  return !entry?.keptStale || (Date.now() < entry.expiresAt && !isExpired(entry));
}

/** An absent value is never served stale, nor any value without `staleTtl`, whatever the clock of Redis says. */
export function isServableStale(
  { entry, staleSince = Infinity }: FoundValue,
  { staleTtl, strong }: EntrySettings,
): boolean {
  if (strong || staleTtl === 0 || entry === undefined || isNothing(entry)) return false;
  return Date.now() < Math.min(entry.expiresAt, staleSince) + staleTtl;
}

/** Whether `refreshAhead` demands a load before the `ttl` ends: by XFetch, or once a part of the `ttl` has passed. */
export function isDueForRefresh(entry: Entry | undefined, { refreshAhead, ttl }: EntrySettings): boolean {
  if (!refreshAhead || !entry) return false;
  const now = Date.now();
  if ('part' in refreshAhead) return now >= entry.expiresAt - (entry.ttl ?? ttl) * (1 - refreshAhead.part);
  return now - (entry.loadTime ?? 0) * refreshAhead.beta * Math.log(Math.random()) >= entry.expiresAt;
}
