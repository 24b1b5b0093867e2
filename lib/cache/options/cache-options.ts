import type { RedisConnection } from '../../options/redis-connection.js';
import type { BloomFilter } from '../bloom/bloom-filter.js';
import type { CacheSerializer } from '../values/cache-serializer.js';
import type { Duration } from '../../options/duration.js';

/** How one value is loaded and kept. Given with a call or a decorator, over the module's `cache.defaults`. */
export interface CacheEntryOptions {
  /** How long a value is fresh, from the moment it is stored. @default '5m' */
  ttl?: Duration;
  /**
   * The part of `ttl` by which it is shortened at random, so that what was stored together does not run out together: a
   * time, also one of `nullTtl` or `setTtl`, is never exceeded. From 0 to 0.5.
   * @default 0.1
   */
  jitter?: number;
  /**
   * How long "there is none" is kept: what a loader says with `null` or `undefined`. 0 does not keep it. @default '30s'
   */
  nullTtl?: Duration;
  /**
   * How long a value is kept beyond its `ttl`. Meanwhile it is served at once, and one caller of all processes loads
   * anew in the background; with `softTimeout`, callers first wait for the fresh one, that long at most.
   * @default 0
   */
  staleTtl?: Duration;
  /** Whether a value that is kept beyond its `ttl` is the answer when the loader fails. @default true */
  staleIfError?: boolean;
  /**
   * Loads anew before the value runs out, in the background, one caller of all processes at a time: `true` or `{ beta
   * }` at a moment drawn at random that is the earlier the longer loads take (XFetch: Vattani et al., "Optimal
   * Probabilistic Cache Stampede Prevention", 2015; `beta` 1 unless given, more is earlier); a number from 0 to 1 once
   * that part of `ttl` has passed.
   * @default false
   */
  refreshAhead?: boolean | number | { beta: number };
  /**
   * How long nothing is loaded for a key in this process after its load has failed, where there is a stale value, or
   * one to refresh: that is the answer meanwhile, without a load. It begins with the failure, and ends with an
   * invalidation. 0 loads again with the next read. Not where `staleIfError` is `false`.
   * @default '1s'
   */
  restAfterError?: Duration;
  /** How long a call waits for the loader where it has a stale value to fall back on. The load goes on. @default 0 */
  softTimeout?: Duration;
  /**
   * How long a loader may take; then its `signal` is aborted, its lease is freed, and `CacheTimeoutError` thrown.
   * @default '30s'
   */
  loaderTimeout?: Duration;
  /**
   * One load at a time for each key over all processes. `lease`: how long a loader that died keeps others waiting
   * (default '5s', renewed every third of it while the loader runs, unless `renew` is false). `wait`: how long to wait
   * for another process' load (default '10s'); after that, as `onTimeout` says, a stale value is the answer if there is
   * one (`'stale'`, the default, which else loads), the value is loaded here and not stored (`'load'`), or
   * `CacheTimeoutError` is thrown (`'throw'`). `false` does not wait for other processes; what is loaded meanwhile is
   * then not stored.
   * @default true
   */
  lock?: boolean | CacheLockOptions;
  /**
   * `'eventual'`: a read may return what was true before an invalidation of another process for as long as its message
   * takes: usually some milliseconds, at most 2 s where the connection for messages has died without a word.
   * `'strong'`: a read never returns what is older than the last invalidation that had completed when it began. It does
   * not use the first level, and serves nothing stale. The loader must then read from the primary of the database.
   * @default 'eventual'
   */
  consistency?: 'eventual' | 'strong';
  /**
   * How long after an invalidation nothing is stored, for loaders that read from replicas: the greatest lag of one.
   * @default 0
   */
  barrier?: Duration;
  /** What the value is deleted by with `deleteByTag`. A loader may name more with `setTags`. @default none */
  tags?: readonly string[];
  /**
   * When Redis fails or does not answer in time: `'open'` goes on without it (reads load, invalidations are repeated
   * until they succeed), `'throw'` rejects with `CacheBackendError`.
   * @default 'open'
   */
  onRedisError?: 'open' | 'throw';
  /**
   * Answers `null`, and loads and stores nothing, where the filter is sure that there is no such id. It is asked when
   * the cache has no value.
   * @default none
   */
  bloom?: { readonly filter: BloomFilter; readonly id: string };
  /** Makes of what was stored what the loader had returned: instances of a class, see `instancesOf`. @default none */
  revive?: (stored: unknown) => unknown;
}

/** What one call of `getOrSet` takes beside the entry options. */
export interface ReadOptions extends CacheEntryOptions {
  /**
   * Gives up this call's wait, which then rejects with `signal.reason`. The load goes on, for others who wait for it
   * and to be stored. @default none
   */
  signal?: AbortSignal | undefined;
  /**
   * Loads anew whatever is stored, and stores it: under the lease, so that an invalidation meanwhile keeps it from
   * being stored, and shared by the calls of one process that ask for it at the same time. When its loader fails the
   * call rejects, and what is stored stays. The first levels of other processes may keep the value before for their
   * `l1.ttl`. @default false
   */
  forceFresh?: boolean | undefined;
}

/** `lock` of `CacheEntryOptions`. */
export interface CacheLockOptions {
  /** How long a loader that died keeps others from loading, from when it was given. At least 100 ms. @default '5s' */
  lease?: Duration;
  /** Whether the lease is renewed, every third of it, while the loader runs. @default true */
  renew?: boolean;
  /** How long to wait for another process' load, from when that was found. @default '10s' */
  wait?: Duration;
  /** What to do after that: see `lock`. @default 'stale' */
  onTimeout?: 'stale' | 'load' | 'throw';
}

/** The cache of a module. */
export interface CacheOptions {
  /** Another Redis than that of the locks: an ioredis client, options or a URL. @default the module's `redis` */
  redis?: RedisConnection;
  /** What entry options are unless a call says otherwise. */
  defaults?: CacheEntryOptions;
  /**
   * `false`: a cache that is always empty, and needs no Redis. Reads run their loaders (those of one process that ask
   * at the same time share one), writes and deletions do nothing, and counting, sets and Bloom filters, of which
   * nothing would be true, reject with `CacheBackendError`. Other processes do not hear of deletions here.
   * @default true
   */
  enabled?: boolean;
  /**
   * Keeps the values in the memory of this process alone, instead of in Redis. Not together with `redis`. @default none
   */
  memory?: MemoryCacheOptions;
  /** Values kept in the memory of the process, in front of Redis. @default false */
  l1?: false | FirstLevelOptions;
  /** How values become bytes. @default `typedSerializer()` */
  serializer?: CacheSerializer;
  /** Compresses large values. What was compressed while it was on counts as absent when it is off. @default false */
  compression?: false | CompressionOptions;
  /**
   * The greatest size of one value in bytes as stored. A larger one is not stored: `set` rejects with
   * `CacheConfigError`; what a loader returned reaches its callers, and a line in the log says so. The default is what
   * a link of 1 Gbit/s carries in half of `commandTimeout`: a command that takes longer counts as Redis that does not
   * answer.
   * @default 16 MiB
   */
  maxValueBytes?: number;
  /** How long one command may take, from its send. @default '250ms' */
  commandTimeout?: Duration;
  /**
   * After `errors` errors in a row, or when Redis says nothing for `commandTimeout`, it is not asked for `open`, or
   * until it answers a PING.
   * @default { errors: 5, open: '5s' }
   */
  breaker?: { errors?: number; open?: Duration };
}

/** `memory` of `CacheOptions`. */
export interface MemoryCacheOptions {
  /**
   * The greatest number of values; those used least recently leave. Sets and Bloom filters are not counted. @default
   * 10_000
   */
  max?: number;
  /** The greatest size of all values together, in bytes as stored. @default 64 MiB */
  maxBytes?: number;
}

/** `compression` of `CacheOptions`. */
export interface CompressionOptions {
  /** Compresses what is serialised to this number of bytes or more. @default 4_096 */
  threshold?: number;
  /**
   * The greatest size of one value in bytes before it is compressed. A larger one is stored as it is, and what would
   * inflate to more, which only others can have stored, counts as absent: so that some bytes in Redis cannot take the
   * memory of the process.
   * @default 64 MiB
   */
  maxBytes?: number;
}

/** `l1` of `CacheOptions`. */
export interface FirstLevelOptions {
  /** The greatest number of values. @default 1_000 */
  max?: number;
  /** The greatest size of all values together, in bytes as stored. @default 64 MiB */
  maxBytes?: number;
  /** How long a value is kept here at most; never beyond the `ttl` that it was stored with. @default '10s' */
  ttl?: Duration;
  /**
   * What tells of changes: messages that each change by this library sends (`'pubsub'`), or also Redis itself
   * (`'tracking'`), for writers that do not use it: whatever they set, delete or let expire is dropped here within
   * milliseconds.
   *
   * `'tracking'` takes a single Redis 6 or Valkey, not a Cluster, a connection more, and a user who may use `CLIENT
   * ID`, `CLIENT TRACKING` and the channel `__redis__:invalidate`; while Redis refuses, nothing is kept here. Each
   * process then hears of every change to every value, also of its own: after a load, the first level has the value
   * from the second read on. A load that is under way while others delete its key is not fenced: only this library can
   * do that.
   * @default 'pubsub'
   */
  bus?: 'pubsub' | 'tracking';
  /**
   * How long a fresh value that is here goes on being served while Redis fails, although changes by other processes are
   * not heard of. It begins when the connection for messages is seen to have ended, and a value then stays until its
   * own `ttl` ends, whatever `ttl` says here. 0 serves none. Never for `consistency: 'strong'`.
   * @default 0
   */
  whileAway?: Duration;
  /**
   * `false` hands out the same object again and again instead of copies: faster, and callers must not change it.
   * @default true
   */
  serialize?: boolean;
}
