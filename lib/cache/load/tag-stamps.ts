import type { TagVersion } from '../../contracts/cache-store.js';
import type { InvalidatedTags } from '../invalidation/local-state.js';
import { type EntrySettings, keptByLease, tagMemory } from '../options/entry-settings.js';
import type { StoreCalls } from '../store/store-calls.js';
import { emptyStamp, type TagStamp } from '../values/envelope.js';
import type { LoadLease } from './load-lease.js';

/** Reads the versions of tags, which are stored with a value as its stamp. */
export class TagStamps {
  constructor(
    private readonly calls: StoreCalls,
    private readonly invalidatedTags: InvalidatedTags,
  ) {}

  /** The versions of the tags, kept by Redis for `memory` ms from now. @throws CacheBackendError when Redis fails */
  begin(key: string, tags: readonly string[], memory: number): Promise<readonly TagVersion[]> {
    return this.calls.run('read of the tags', key, () => this.calls.store.beginTags(tags, memory));
  }

  /** The stamp for a value that is stored now and kept for `kept` ms. @throws CacheBackendError when Redis fails */
  async ofWrite(key: string, tags: readonly string[], kept: number): Promise<TagStamp> {
    return stampOf(tags, await this.begin(key, tags, tagMemory(kept)));
  }

  /**
   * The stamp for a value that was loaded under the lease and is kept for `kept` ms; `undefined` if a tag that the
   * loader named was invalidated since the lease was granted. Where Redis would forget a tag of the options before the
   * value ends, because the load took long or has set another `ttl`, the tag is kept for longer.
   *
   * @throws CacheBackendError when Redis fails
   */
  async ofLoad(
    { key, granted }: LoadLease,
    settings: EntrySettings,
    named: readonly string[],
    kept: number,
  ): Promise<TagStamp | undefined> {
    const { tags, tagPrefix } = settings;
    const stamp = stampOf(tags, granted.tagVersions);
    const outlives = kept > keptByLease(settings) - (performance.now() - granted.knownAt);
    const added = named.map((tag) => tagPrefix + tag).filter((tag) => !Object.hasOwn(stamp, tag));
    const further = outlives ? [...tags, ...added] : added;
    if (further.length === 0) return stamp;
    const { calls } = this;
    const [versions, invalidatedAt] = await Promise.all([
      this.begin(key, further, tagMemory(kept)),
      calls.run('read of the tags', key, () => calls.store.lastTagInvalidation()),
    ]);
    // A tag that begins now may have been invalidated since the lease, and then evicted by Redis.
    const mayBeEvicted =
      invalidatedAt === null ? this.invalidatedTags.count !== granted.invalidatedTags : invalidatedAt > granted.at;
    for (const [index, tag] of further.entries()) {
      const { version, begun } = versions[index] as TagVersion;
      if (version === stamp[tag]) continue;
      if (version > granted.at && (!begun || mayBeEvicted)) return undefined;
      stamp[tag] = version;
    }
    return stamp;
  }
}

function stampOf(tags: readonly string[], versions: readonly TagVersion[]): Record<string, number> {
  const stamp = emptyStamp();
  for (const [index, tag] of tags.entries()) stamp[tag] = versions[index]?.version ?? 0;
  return stamp;
}
