/** What the store keeps under a key of the cache. */
export interface CacheKeyInfo {
  /**
   * - `fresh`: reads return the value.
   * - `stale`: its `ttl` has ended, or it was expired softly. Reads load a new one; they return this one meanwhile if
   *   their `staleTtl` allows it.
   * - `invalidated`: one of its tags was invalidated since it was loaded. No read returns it, although it is stored.
   * - `unreadable`: it has no envelope of this library's version. No read returns it.
   * - `absent`: there is no value, but a load or a write is under way.
   */
  readonly state: 'fresh' | 'stale' | 'invalidated' | 'unreadable' | 'absent';
  /** Milliseconds for which it stays fresh; 0 unless it is. `Infinity` if it never expires. */
  readonly freshFor: number;
  /** Milliseconds until the store removes it; 0 if there is none, `Infinity` if it never expires. */
  readonly keptFor: number;
  /** Bytes as stored, with the envelope and after compression; 0 if there is none. */
  readonly bytes: number;
  /** Its tags, each with the prefix of the namespace in which the value was stored. */
  readonly tags: readonly string[];
  /** Those of its tags that were invalidated since it was loaded, or that the store does not remember. */
  readonly invalidatedTags: readonly string[];
  /** Milliseconds left of the load lease, which the loading process renews; absent while nobody loads the value. */
  readonly loading?: number;
  /** Whether a write is under way (`mutate`, or a barrier of an invalidation): loads store nothing until it ends. */
  readonly barrier: boolean;
}
