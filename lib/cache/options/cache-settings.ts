import { CacheConfigError } from '../../errors/cache-errors.js';
import type { CacheOptions, CompressionOptions, FirstLevelOptions, MemoryCacheOptions } from './cache-options.js';
import type { CacheSerializer } from '../values/cache-serializer.js';
import { LONGEST_DELAY, milliseconds, refused } from './cache-durations.js';
import { entrySettings, type EntrySettings } from './entry-settings.js';
import { NO_COMPRESSION, type Compression } from '../values/envelope.js';
import type { FirstLevelSettings } from '../first-level/first-level.js';

/** `CacheOptions` checked and complete. */
export interface CacheSettings {
  readonly entries: EntrySettings;
  readonly enabled: boolean;
  /** Where the values are kept in the memory of this process alone. */
  readonly memory: Required<MemoryCacheOptions> | undefined;
  readonly firstLevel: FirstLevelSettings | undefined;
  /** Without one it is `typedSerializer()`. */
  readonly serializer: CacheSerializer | undefined;
  readonly compression: Compression;
  readonly maxValueBytes: number;
  readonly commandTimeout: number;
  readonly breaker: { readonly errors: number; readonly open: number };
}

const OPTION_NAMES = new Set<string>([
  'enabled',
  'redis',
  'memory',
  'defaults',
  'l1',
  'serializer',
  'compression',
  'maxValueBytes',
  'commandTimeout',
  'breaker',
] satisfies (keyof CacheOptions)[]);

const FIRST_LEVEL_NAMES = new Set<string>([
  'max',
  'maxBytes',
  'ttl',
  'bus',
  'whileAway',
  'serialize',
] satisfies (keyof FirstLevelOptions)[]);

const MEMORY_NAMES = new Set<string>(['max', 'maxBytes'] satisfies (keyof MemoryCacheOptions)[]);

const COMPRESSION_NAMES = new Set<string>(['threshold', 'maxBytes'] satisfies (keyof CompressionOptions)[]);

/** @throws CacheConfigError naming the option, the value and the remedy */
export function cacheSettings(options: CacheOptions): CacheSettings {
  if (typeof options !== 'object' || options === null)
    throw refused('cache', options, 'an object of cache options, or false');
  requireKnown('cache', options, OPTION_NAMES);
  const { enabled = true } = options;
  if (typeof enabled !== 'boolean') throw refused('cache.enabled', enabled, 'true or false');
  const { serializer, compression = false, breaker = {} } = options;
  if (serializer !== undefined) requireSerializer(serializer);
  if (typeof breaker !== 'object' || breaker === null) throw refused('cache.breaker', breaker, '{ errors, open }');
  return {
    entries: entrySettings(options.defaults),
    enabled,
    memory: memorySettings(options),
    // Nothing is ever found to keep there.
    firstLevel: enabled ? firstLevelSettings(options.l1 ?? false) : undefined,
    serializer,
    compression: compressionSettings(compression),
    maxValueBytes: whole('cache.maxValueBytes', options.maxValueBytes ?? 16 * 1_024 * 1_024),
    commandTimeout: milliseconds('cache.commandTimeout', options.commandTimeout ?? 250, 1, LONGEST_DELAY),
    breaker: {
      errors: whole('cache.breaker.errors', breaker.errors ?? 5),
      open: milliseconds('cache.breaker.open', breaker.open ?? 5_000, 1, LONGEST_DELAY),
    },
  };
}

function memorySettings({ memory, redis }: CacheOptions): CacheSettings['memory'] {
  if (memory === undefined) return undefined;
  if (typeof memory !== 'object' || memory === null) throw refused('cache.memory', memory, '{ max, maxBytes }');
  requireKnown('cache.memory', memory, MEMORY_NAMES);
  if (redis !== undefined)
    throw new CacheConfigError('Options "cache.memory" and "cache.redis" are both set; give one');
  return {
    max: whole('cache.memory.max', memory.max ?? 10_000),
    maxBytes: whole('cache.memory.maxBytes', memory.maxBytes ?? 64 * 1_024 * 1_024),
  };
}

function requireSerializer(serializer: CacheSerializer): void {
  if (typeof serializer?.serialize !== 'function' || typeof serializer.deserialize !== 'function') {
    throw refused('cache.serializer', serializer, 'an object with serialize and deserialize');
  }
  if (serializer.name !== undefined && (typeof serializer.name !== 'string' || serializer.name === '')) {
    throw refused('cache.serializer.name', serializer.name, 'a string of one character or more, or leave it out');
  }
}

function firstLevelSettings(options: false | FirstLevelOptions): CacheSettings['firstLevel'] {
  if (options === false) return undefined;
  if (typeof options !== 'object' || options === null)
    throw refused('cache.l1', options, 'false or { max, maxBytes, ttl, bus, serialize }');
  requireKnown('cache.l1', options, FIRST_LEVEL_NAMES);
  const { bus = 'pubsub', serialize = true } = options;
  if (bus !== 'pubsub' && bus !== 'tracking') throw refused('cache.l1.bus', bus, "'pubsub' or 'tracking'");
  if (typeof serialize !== 'boolean') throw refused('cache.l1.serialize', serialize, 'true or false');
  return {
    max: whole('cache.l1.max', options.max ?? 1_000),
    maxBytes: whole('cache.l1.maxBytes', options.maxBytes ?? 64 * 1_024 * 1_024),
    ttl: milliseconds('cache.l1.ttl', options.ttl ?? 10_000, 1),
    bus,
    whileAway: milliseconds('cache.l1.whileAway', options.whileAway ?? 0, 0),
    serialize,
  };
}

function compressionSettings(compression: CacheOptions['compression']): Compression {
  if (compression === false || compression === undefined) return NO_COMPRESSION;
  if (typeof compression !== 'object' || compression === null)
    throw refused('cache.compression', compression, 'false or { threshold, maxBytes }');
  requireKnown('cache.compression', compression, COMPRESSION_NAMES);
  return {
    threshold: whole('cache.compression.threshold', compression.threshold ?? 4_096),
    maxBytes: whole('cache.compression.maxBytes', compression.maxBytes ?? 64 * 1_024 * 1_024),
  };
}

function whole(option: string, value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 1) return value as number;
  throw refused(option, value, 'a whole number from 1 on');
}

function requireKnown(what: string, options: object, names: ReadonlySet<string>): void {
  for (const name of Object.keys(options)) {
    if (!names.has(name)) {
      throw new CacheConfigError(`Unknown option "${what}.${name}"; give any of ${[...names].join(', ')}`);
    }
  }
}
