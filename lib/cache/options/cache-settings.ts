import { duration, instance, oneOf, orFalse, timer, trueOrFalse, wholeNumber } from '../../options/checks.js';
import { cacheOption } from '../../options/option-checks.js';
import { nested, OptionTable, settingOf } from '../../options/option-table.js';
import type { FirstLevelSettings } from '../first-level/first-level.js';
import type { CacheSerializer } from '../values/cache-serializer.js';
import { NO_COMPRESSION, type Compression } from '../values/envelope.js';
import type { CacheOptions, CompressionOptions, FirstLevelOptions, MemoryCacheOptions } from './cache-options.js';
import { DEFAULT_ENTRY_SETTINGS, entrySettings, type EntrySettings } from './entry-settings.js';

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
