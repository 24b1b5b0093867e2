import type { TagState } from '../../contracts/cache-store.js';
import type { CacheCore } from '../cache-core.js';
import { countedNumber, isExpired, isNothing, type Entry, type TagStamp } from '../values/envelope.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { Revived } from './revival.js';

/** A value from the store. */
export interface Found {
  readonly value: unknown;
  /** What `revive` made of the value, where there is one. */
  readonly revived?: Revived;
  /** Absent for a number that is counted up. */
  readonly entry: Entry | undefined;
  /** As it is stored; absent where it comes from the first level. */
  readonly data?: Buffer;
  /** Since when one of its tags has been expired softly, in ms of the wall clock. */
  readonly staleSince?: number;
}

/** So many bytes tell a value from the next one: the time when it expires is among them. */
const BEGINNING = 64;

/** What the stored value begins with. */
export function beginningOf(data: Buffer): Buffer {
  return data.subarray(0, BEGINNING);
}

/** What cannot be read counts as absent: it may be of another version of the application. */
export function decode(core: CacheCore, key: string, data: Buffer | null): Found | undefined {
  if (data === null) return undefined;
  try {
    const entry = core.envelopes.open(data);
    if (entry) return { value: core.envelopes.valueOf(entry), entry, data };
    const value = countedNumber(data);
    return value === undefined ? undefined : { value, entry: undefined, data };
  } catch (error) {
    core.warnings.warn(`What is stored for "${key}" cannot be read, and counts as absent: ${String(error)}`);
    return undefined;
  }
}

/** A value that was stored before the code named a tag does not go with it. */
export function bears({ tags }: Entry, required: readonly string[]): boolean {
  return required.every((tag) => tags !== undefined && Object.hasOwn(tags, tag));
}

/**
 * What its tags make of the value: `undefined` where one of them was invalidated since it was loaded, or it does not
 * bear those that are required, as it may have been stored before the code named them.
 *
 * @throws CacheBackendError when the store does not tell, or has not confirmed a deletion of what was found
 */
export async function judgedByTags(
  core: CacheCore,
  key: string,
  found: Found,
  required: readonly string[],
): Promise<Found | undefined> {
  const stamp: TagStamp = found.entry?.tags ?? {};
  const tags = Object.keys(stamp);
  if (!required.every((tag) => tags.includes(tag))) return undefined;
  if (tags.length === 0) return found;
  const changes = core.stepOrder.afterTags(tags);
  if (changes) await changes;
  const doubt = core.unconfirmed.doubtAbout(key, stamp);
  if (doubt) throw doubt;
  const states = await core.calls.run('read of the tags', key, () => core.calls.store.readTags(tags));
  return judgedBy(tags, states, found);
}

/** As `judgedByTags`, where the tags are known. */
export function judgedBy(tags: readonly string[], states: readonly TagState[], found: Found): Found | undefined {
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

export function isFresh({ entry, staleSince }: Found): boolean {
  if (staleSince !== undefined) return false;
  // Redis itself ends what is not kept beyond its ttl: clocks that differ then do no harm.
  return !entry?.keptStale || (Date.now() < entry.expiresAt && !isExpired(entry));
}

/** That there is nothing is never served stale. */
export function isServableStale({ entry, staleSince = Infinity }: Found, { staleTtl, strong }: EntrySettings): boolean {
  if (strong || entry === undefined || isNothing(entry)) return false;
  return Date.now() < Math.min(entry.expiresAt, staleSince) + staleTtl;
}

/** XFetch, or a part of the ttl. */
export function wantsRefresh(entry: Entry | undefined, { refreshAhead, ttl }: EntrySettings): boolean {
  if (!refreshAhead || !entry) return false;
  const now = Date.now();
  if ('part' in refreshAhead) return now >= entry.expiresAt - ttl * (1 - refreshAhead.part);
  return now - (entry.loadTime ?? 0) * refreshAhead.beta * Math.log(Math.random()) >= entry.expiresAt;
}
