import type { TagState, TagVersion } from '../../../contracts/cache-store.js';
import { ExpiringMap } from '../expiring-map.js';

/** How long (ms) the version of an invalidated tag is kept at least: longer than a loader may run. */
const TAG_MEMORY = 24 * 60 * 60 * 1_000;
/** The same for a tag of no value: a load with that tag compares with the last invalidation of any tag. */
const UNUSED_TAG_MEMORY = 10 * 60 * 1_000;

interface Tag extends TagVersion {
  /** Values stored with a version from this one on are stale; set only if the last invalidation was a soft expiry. */
  readonly least?: number | undefined;
}

/** The versions of tags. `moment` returns the time in µs, greater with each call. */
export class MemoryCacheTags {
  private readonly tags = new ExpiringMap<Tag>();
  lastInvalidation: number | null = null;

  constructor(private readonly moment: () => number) {}

  begin(tags: readonly string[], ttl: number): readonly TagVersion[] {
    return tags.map((tag) => {
      if (!this.tags.prolong(tag, ttl)) this.tags.set(tag, { version: this.moment(), begun: true }, ttl);
      const { version, begun } = this.tags.get(tag) as Tag;
      return { version, begun };
    });
  }

  read(tags: readonly string[]): readonly TagState[] {
    return tags.map((tag) => {
      const { version = null, least } = this.tags.get(tag) ?? {};
      return version === null || least === undefined ? version : { version, least };
    });
  }

  invalidate(tag: string, softly: boolean): void {
    const last = this.tags.get(tag);
    const version = this.moment();
    const least = softly ? (last?.least ?? last?.version) : undefined;
    this.lastInvalidation = version;
    const memory = last ? TAG_MEMORY : UNUSED_TAG_MEMORY;
    this.tags.set(tag, { version, begun: false, least }, Math.max(memory, this.tags.remaining(tag) ?? 0));
  }
}
