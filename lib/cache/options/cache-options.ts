import {
  callable,
  type Duration,
  duration,
  instance,
  oneOf,
  orFalse,
  timer,
  trueOrFalse,
  wholeNumber,
} from '../../options/checks.js';
import { cacheOption } from '../../options/option-checks.js';
import { nested, OptionTable, settingOf } from '../../options/option-table.js';
import type { RedisConnection } from '../../options/redis-connection.js';
import type { BloomFilter } from '../store/bloom-filter.js';
import { NO_COMPRESSION, type CacheSerializer, type Compression } from '../values/envelope.js';
import type { FirstLevelSettings } from '../values/first-level.js';
import { DEFAULT_ENTRY_SETTINGS, entrySettings, type EntrySettings } from './entry-settings.js';

/**
 * How one value is loaded and kept. Given with a call or a decorator; the module's `cache.defaults` fill in the rest.
 */
export interface CacheEntryOptions {
  /** How long a value is fresh, from the moment it is stored. `Infinity`: for ever. @default '5m' */
  ttl?: Duration;
  /**
   * The part of `ttl` by which it is shortened at random, so that values stored together do not expire together. Also
   * applies to `nullTtl` and `setTtl`; never lengthens a time. From 0 to 0.5.
   * @default 0.1
   */
  jitter?: number;
  /**
   * How long an absent value is kept: a loader returned `null` or `undefined`. 0 does not store it. @default '30s'
   */
  nullTtl?: Duration;
  /**
   * How long a value is kept beyond its `ttl`. Meanwhile reads return it at once, and one caller of all processes loads
   * a fresh one in the background. With `softTimeout`, callers first wait up to that time for the fresh one.
   * @default 0
   */
  staleTtl?: Duration;
  /** Whether a stale value is returned when the loader fails. @default true */
  staleIfError?: boolean;
  /**
   * Loads in the background before the value expires, one caller of all processes at a time. A number from 0 to 1: once
   * that part of `ttl` has passed. `true` or `{ beta }`: at a random moment, the earlier the longer loads take (XFetch:
   * Vattani et al., "Optimal Probabilistic Cache Stampede Prevention", 2015); `beta` is 1 by default, a larger one
   * loads earlier.
   * @default false
   */
  refreshAhead?: boolean | number | { beta: number };
  /**
   * How long this process does not load a key again after a load of it has failed, if it has a stale value or one to
   * refresh: it returns that one meanwhile. Counted from the failure; an invalidation ends it. 0 loads again with the
   * next read. Without effect if `staleIfError` is `false`.
   * @default '1s'
   */
  restAfterError?: Duration;
  /**
   * How long a call waits for the loader before it returns a stale value, if there is one. The load goes on. @default 0
   */
  softTimeout?: Duration;
  /**
   * How long a loader may take; then its `signal` is aborted, its lease ends, and `CacheTimeoutError` is thrown.
   * @default '30s'
   */
  loaderTimeout?: Duration;
  /**
   * One load at a time for each key over all processes. `lease`: how long a loader that died blocks others (default
   * '5s', renewed every third of it while the loader runs, unless `renew` is false). `wait`: how long to wait for the
   * load of another process (default '10s'). After that, a stale value is the answer if there is one. If not,
   * `onTimeout` decides: load here without storing (`'stale'`, the default, and `'load'`), or throw `CacheTimeoutError`
   * (`'throw'`). `false`: do not wait for other processes; a value loaded while another process loads is not stored.
   * @default true
   */
  lock?: boolean | CacheLockOptions;
  /**
   * `'eventual'`: after an invalidation by another process, a read may return the old value until the message arrives:
   * usually some milliseconds, at most 2 s if the connection for messages has died without an error. `'strong'`: a read
   * never returns a value older than the last invalidation that had completed when the read began. It does not use the
   * first level and never returns stale values. The loader must then read from the primary of the database.
   * @default 'eventual'
   */
  consistency?: 'eventual' | 'strong';
  /**
   * How long nothing is stored after an invalidation, for loaders that read from replicas: the greatest lag of a
   * replica.
   * @default 0
   */
  barrier?: Duration;
  /** The tags of the value, by which `deleteByTag` deletes it. A loader may add more with `setTags`. @default none */
  tags?: readonly string[];
  /**
   * When Redis fails or does not answer in time: `'open'` goes on without it (reads load, invalidations are repeated
   * until Redis confirms them), `'throw'` rejects with `CacheBackendError`.
   * @default 'open'
   */
  onRedisError?: 'open' | 'throw';
  /**
   * Returns `null`, without loading or storing, if the filter is sure that the id does not exist. Asked only when the
   * cache has no value.
   * @default none
   */
  bloom?: { readonly filter: BloomFilter; readonly id: string };
  /**
   * Turns the stored value into what the loader returned, such as instances of a class: see `instancesOf`. @default
   * none
   */
  revive?: (stored: unknown) => unknown;
  /**
   * What most reads find. `'miss'`: a read asks for the value or the load lease in one round trip, so that a miss costs
   * one less, and a hit more work of Redis. `'hit'`: it reads first. By default the last reads of the key template, or
   * of the namespace, decide: `'miss'` once a quarter of them has found nothing. @default by the last reads
   */
  expect?: 'hit' | 'miss';
}

/** The options of one `getOrSet`: the entry options and those of the call. */
export interface ReadOptions extends CacheEntryOptions {
  /**
   * Ends this call's wait, which then rejects with `signal.reason`. The load goes on, for other callers and to be
   * stored. @default none
   */
  signal?: AbortSignal | undefined;
  /**
   * Loads even if a value is stored, and stores the result under the load lease: an invalidation meanwhile keeps it
   * from being stored. Calls of one process with this option share one load. If the loader fails, the call rejects, and
   * the stored value stays. The first levels of other processes may serve the old value for their `l1.ttl`. @default
   * false
   */
  forceFresh?: boolean | undefined;
}

/** `lock` of `CacheEntryOptions`. @inline */
export type CacheLockOptions = {
  /**
   * How long a loader that died keeps others from loading, from the grant of the lease. At least 100 ms. @default '5s'
   */
  lease?: Duration;
  /** Whether the lease is renewed, every third of it, while the loader runs. @default true */
  renew?: boolean;
  /** How long to wait for the load of another process, from when that load was found. @default '10s' */
  wait?: Duration;
  /** What to do when that time is over: see `lock`. @default 'stale' */
  onTimeout?: 'stale' | 'load' | 'throw';
};

/** The cache of a module. */
export interface CacheOptions {
  /** Another Redis than the one for locks: a client, ioredis options or a URL. @default the module's `redis` */
  redis?: RedisConnection;
  /** The defaults of the entry options. */
  defaults?: CacheEntryOptions;
  /**
   * `false`: a cache that is always empty and needs no Redis. Reads run their loaders (those of one process that ask at
   * the same time share one), writes and deletions do nothing. Counters, sets and Bloom filters would give wrong
   * answers, so they reject with `CacheBackendError`. Deletions here send no messages to other processes.
   */
  enabled?: boolean;
  /**
   * Keeps the values in the memory of this process instead of in Redis. Not together with `redis`. @default none
   */
  memory?: MemoryCacheOptions;
  /** Keeps values also in the memory of this process, in front of Redis. @default false */
  l1?: false | FirstLevelOptions;
  /** Turns values into bytes. @default `typedSerializer()` */
  serializer?: CacheSerializer;
  /** Compresses large values. If it is turned off again, compressed values count as absent. @default false */
  compression?: false | CompressionOptions;
  /**
   * The most bytes of one stored value. `set` rejects a larger one with `CacheConfigError`; a larger one that a loader
   * returned reaches its callers but is not stored, and a warning is logged. The default is what a link of 1 Gbit/s
   * carries in half of `commandTimeout`: a command that takes longer looks like a Redis that does not answer.
   * @default 16 MiB
   */
  maxValueBytes?: number;
  /** How long one command may take, from when it is sent. @default '250ms' */
  commandTimeout?: Duration;
  /**
   * The circuit breaker opens after `errors` failures in a row, or when Redis answers nothing for `commandTimeout`.
   * Then no command is sent for `open`, or until Redis replies to a PING.
   * @default { errors: 5, open: '5s' }
   */
  breaker?: { errors?: number; open?: Duration };
  /**
   * For decorated methods that run inside of a transaction of their caller. `@CacheEvict` and `@CachePut` call it when
   * the method has succeeded, with what they would do now. `true`: the application calls `run` once the outermost
   * transaction has committed, and drops it at a rollback. `false`: there is no transaction, so it is done at once.
   * `run` never rejects: what fails is logged. @default none: done at once
   */
  afterCommit?: (run: () => Promise<void>) => boolean;
  /**
   * Opens an async context for a load in the background (a refresh by `staleTtl` or `refreshAhead`), which runs outside
   * of the context of the call that found the value due: `(run) => cls.run(run)`. It must call `run` once, before it
   * returns or the promise that it returns resolves. `key` is the full key; the first one, if a batch loader refreshes
   * several. @default the context in which the module was built
   */
  refreshContext?: (run: () => void, key: string) => unknown;
}

/** `memory` of `CacheOptions`. @inline */
export type MemoryCacheOptions = {
  /**
   * The most values; the least recently used ones are dropped. Sets and Bloom filters are not counted. @default 10_000
   */
  max?: number;
  /** The most bytes of all stored values together. @default 64 MiB */
  maxBytes?: number;
};

/** `compression` of `CacheOptions`. @inline */
export type CompressionOptions = {
  /** Compresses values that serialize to this number of bytes or more. @default 4_096 */
  threshold?: number;
  /**
   * The most bytes of one value before compression. A larger one is stored uncompressed. Stored data that would inflate
   * to more counts as absent, so that a few bytes in Redis cannot exhaust the memory of the process.
   * @default 64 MiB
   */
  maxBytes?: number;
};

/** `l1` of `CacheOptions`. @inline */
export type FirstLevelOptions = {
  /** The most values. @default 1_000 */
  max?: number;
  /** The most bytes of all values together, as stored. @default 64 MiB */
  maxBytes?: number;
  /** How long a value is kept here at most; never beyond the `ttl` it was stored with. @default '10s' */
  ttl?: Duration;
  /**
   * The source of changes: the messages that this library sends with each change (`'pubsub'`), or in addition Redis
   * itself (`'tracking'`), for values that other programs set, delete or let expire: they are dropped here within
   * milliseconds.
   *
   * `'tracking'` takes a single Redis 6 or Valkey, not a Cluster; one more connection; and a user who may use `CLIENT
   * ID`, `CLIENT TRACKING` and the channel `__redis__:invalidate`. While Redis refuses it, nothing is kept here. Each
   * process then receives a message for every change of every value, its own included: after a load, the first level
   * has the value from the second read on. A load under way is not stopped from storing when another program deletes
   * its key: only this library can do that.
   * @default 'pubsub'
   */
  bus?: 'pubsub' | 'tracking';
  /**
   * How long fresh values are served from here while Redis fails, although messages of changes by other processes do
   * not arrive. Counted from when the connection for messages is known to have ended; a value then stays until its own
   * `ttl` ends, whatever `ttl` is set here. 0 serves none. Never applies to `consistency: 'strong'`.
   * @default 0
   */
  whileAway?: Duration;
  /**
   * `false` hands out the same object again and again instead of copies: faster, and callers must not change it.
   * @default true
   */
  serialize?: boolean;
};

interface BreakerSettings {
  readonly errors: number;
  readonly open: number;
}

/** `CacheOptions` checked, complete, and in ms. */
export interface CacheSettings {
  readonly entries: EntrySettings;
  readonly enabled: boolean;
  readonly redis: CacheOptions['redis'];
  /** Present if the values are kept in the memory of this process alone. */
  readonly memory: Required<MemoryCacheOptions> | undefined;
  readonly firstLevel: FirstLevelSettings | undefined;
  /** `undefined`: `typedSerializer()`. */
  readonly serializer: CacheSerializer | undefined;
  readonly compression: Compression;
  readonly maxValueBytes: number;
  readonly commandTimeout: number;
  readonly breaker: BreakerSettings;
  readonly afterCommit: CacheOptions['afterCommit'];
  readonly refreshContext: CacheOptions['refreshContext'];
}

const MIB = 1_024 * 1_024;

const memorySetting = settingOf<Required<MemoryCacheOptions>>();
const MEMORY_OPTIONS = new OptionTable<MemoryCacheOptions, Required<MemoryCacheOptions>>(
  cacheOption,
  'option',
  'cache.memory.',
  { max: 10_000, maxBytes: 64 * MIB },
  { max: memorySetting('max', wholeNumber), maxBytes: memorySetting('maxBytes', wholeNumber) },
);

const firstLevelSetting = settingOf<FirstLevelSettings>();
const FIRST_LEVEL_OPTIONS = new OptionTable<FirstLevelOptions, FirstLevelSettings>(
  cacheOption,
  'option',
  'cache.l1.',
  { max: 1_000, maxBytes: 64 * MIB, ttl: 10_000, bus: 'pubsub', whileAway: 0, serialize: true },
  {
    max: firstLevelSetting('max', wholeNumber),
    maxBytes: firstLevelSetting('maxBytes', wholeNumber),
    ttl: firstLevelSetting('ttl', duration(1)),
    bus: firstLevelSetting('bus', oneOf('pubsub', 'tracking')),
    whileAway: firstLevelSetting('whileAway', duration(0)),
    serialize: firstLevelSetting('serialize', trueOrFalse),
  },
);

const compressionSetting = settingOf<Compression>();
const COMPRESSION_OPTIONS = new OptionTable<CompressionOptions, Compression>(
  cacheOption,
  'option',
  'cache.compression.',
  { threshold: 4_096, maxBytes: 64 * MIB },
  { threshold: compressionSetting('threshold', wholeNumber), maxBytes: compressionSetting('maxBytes', wholeNumber) },
);

const breakerSetting = settingOf<BreakerSettings>();
const BREAKER_OPTIONS = new OptionTable<NonNullable<CacheOptions['breaker']>, BreakerSettings>(
  cacheOption,
  'option',
  'cache.breaker.',
  { errors: 5, open: 5_000 },
  { errors: breakerSetting('errors', wholeNumber), open: breakerSetting('open', timer(1)) },
);

const setting = settingOf<CacheSettings>();
const CACHE_OPTIONS = new OptionTable<CacheOptions, CacheSettings>(
  cacheOption,
  'option',
  'cache.',
  {
    entries: DEFAULT_ENTRY_SETTINGS,
    enabled: true,
    redis: undefined,
    memory: undefined,
    firstLevel: undefined,
    serializer: undefined,
    compression: NO_COMPRESSION,
    maxValueBytes: 16 * MIB,
    commandTimeout: 250,
    breaker: BREAKER_OPTIONS.defaults,
    afterCommit: undefined,
    refreshContext: undefined,
  },
  {
    enabled: setting('enabled', trueOrFalse),
    // The store checks it, because only the store knows what its client library takes.
    redis: (settings, value) => {
      settings.redis = value as CacheOptions['redis'];
    },
    memory: setting('memory', nested(MEMORY_OPTIONS, '{ max, maxBytes }')),
    defaults: setting('entries', (value, option, checks) =>
      entrySettings(checks.object(option, value, 'an object of cache options')),
    ),
    l1: setting(
      'firstLevel',
      orFalse(undefined, nested(FIRST_LEVEL_OPTIONS, 'false or { max, maxBytes, ttl, bus, serialize }')),
    ),
    serializer: setting('serializer', (value, option, checks) => {
      const serializer = instance(isSerializer, 'an object with serialize and deserialize')(value, option, checks);
      const { name } = serializer;
      const named = name === undefined || (typeof name === 'string' && name !== '');
      checks.require(named, `${option}.name`, name, 'a string of one character or more, or leave it out');
      return serializer;
    }),
    compression: setting(
      'compression',
      orFalse(NO_COMPRESSION, nested(COMPRESSION_OPTIONS, 'false or { threshold, maxBytes }')),
    ),
    maxValueBytes: setting('maxValueBytes', wholeNumber),
    commandTimeout: setting('commandTimeout', timer(1)),
    breaker: setting('breaker', nested(BREAKER_OPTIONS, '{ errors, open }')),
    afterCommit: setting('afterCommit', callable<NonNullable<CacheOptions['afterCommit']>>()),
    refreshContext: setting('refreshContext', callable<NonNullable<CacheOptions['refreshContext']>>()),
  },
);

/** @throws CacheConfigError naming the option, the value and the remedy */
export function cacheSettings(options: CacheOptions): CacheSettings {
  cacheOption.object('cache', options, 'an object of cache options, or false');
  const settings = CACHE_OPTIONS.settings(options);
  if (settings.memory && settings.redis !== undefined) {
    throw cacheOption.conflict('Options "cache.memory" and "cache.redis" are both set; give one');
  }
  // A cache that is always empty needs no first level.
  if (!settings.enabled) settings.firstLevel = undefined;
  return settings;
}

function isSerializer(value: unknown): value is CacheSerializer {
  const serializer = value as Partial<CacheSerializer> | null;
  return typeof serializer?.serialize === 'function' && typeof serializer.deserialize === 'function';
}
