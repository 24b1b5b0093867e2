import type { CacheCore } from './cache-core.js';
import { countedNumber, type Entry, type TagStamp } from './envelope.js';
import type { EntrySettings } from './entry-settings.js';
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
    core.complaints.warn(`What is stored for "${key}" cannot be read, and counts as absent: ${String(error)}`);
    return undefined;
  }
}

/** A value that was stored before the code named a tag does not go with it. */
export function bears({ tags }: Entry, required: readonly string[]): boolean {
  return required.every((tag) => tags !== undefined && Object.hasOwn(tags, tag));
}

/**
 * Whether no tag of the value was invalidated since it was loaded, and it bears those that are required: it may have been
 * stored before the code named them.
 *
 * @throws CacheBackendError when the store does not tell, or has not confirmed a deletion of what was found
 */
export async function hasCurrentTags(
  core: CacheCore,
  key: string,
  { entry }: Found,
  required: readonly string[],
): Promise<boolean> {
  const stamp: TagStamp = entry?.tags ?? {};
  const tags = Object.keys(stamp);
  if (!required.every((tag) => tags.includes(tag))) return false;
  if (tags.length === 0) return true;
  const changes = core.turns.afterTags(tags);
  if (changes) await changes;
  const doubt = core.unconfirmed.doubtAbout(key, stamp);
  if (doubt) throw doubt;
  const versions = await core.calls.run('read of the tags', key, () => core.calls.store.readTags(tags));
  return tags.every((tag, index) => stamp[tag] === versions[index]);
}

export function isFresh({ entry }: Found): boolean {
  // Redis itself ends what is not kept beyond its ttl: clocks that differ then do no harm.
  return !entry?.keptStale || Date.now() < entry.expiresAt;
}

export function isServableStale({ entry }: Found, { staleTtl, strong }: EntrySettings): boolean {
  return !strong && entry !== undefined && Date.now() < entry.expiresAt + staleTtl;
}

/** XFetch, or a part of the ttl. */
export function wantsRefresh(entry: Entry | undefined, { refreshAhead, ttl }: EntrySettings): boolean {
  if (!refreshAhead || !entry) return false;
  const now = Date.now();
  if ('part' in refreshAhead) return now >= entry.expiresAt - ttl * (1 - refreshAhead.part);
  return now - (entry.loadTime ?? 0) * refreshAhead.beta * Math.log(Math.random()) >= entry.expiresAt;
}
