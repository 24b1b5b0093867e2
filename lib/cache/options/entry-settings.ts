import { whyNotAName } from '../../keys/key-part.js';
import { abortSignal, callable, duration, instance, oneOf, timer, trueOrFalse } from '../../options/checks.js';
import { templateOf } from '../../options/fixed-options.js';
import { cacheOption, type OptionChecks } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import type { CacheEntryOptions, CacheLockOptions, ReadOptions, CacheOptions } from './cache-options.js';

/** How a load takes and keeps its load lease, and waits for that of another process. */
interface LoadLockSettings {
  readonly lease: number;
  readonly renew: boolean;
  /** 0: does not wait. */
  readonly wait: number;
  readonly onTimeout: 'stale' | 'load' | 'throw';
}

/** `CacheEntryOptions` checked, complete, and in ms. */
export interface EntrySettings extends LoadLockSettings {
  readonly ttl: number;
  readonly jitter: number;
  readonly nullTtl: number;
  readonly staleTtl: number;
  readonly staleIfError: boolean;
  /** Loads early by XFetch with this beta, or once this part of the `ttl` has passed. */
  readonly refreshAhead: { readonly beta: number } | { readonly part: number } | undefined;
  readonly restAfterError: number;
  readonly softTimeout: number;
  readonly loaderTimeout: number;
  readonly strong: boolean;
  readonly barrier: number;
  readonly tags: readonly string[];
  readonly failOpen: boolean;
  readonly bloom: CacheEntryOptions['bloom'];
  readonly revive: ((stored: unknown) => unknown) | undefined;
  /** What most reads find; `undefined`: what the last ones have found. */
  readonly expect: 'hit' | 'miss' | undefined;
  readonly forceFresh: boolean;
  /** The signal of the call: what fails after it was aborted is the error of that call alone. */
  readonly signal?: AbortSignal | undefined;
  /** Precedes the tags that the loader names; `tags` have it already. */
  readonly tagPrefix: string;
  /** The key template of the decorator, for events. */
  readonly template: string | undefined;
}

const loadLockSetting = settingOf<LoadLockSettings>();
const LOAD_LOCK_OPTIONS = new OptionTable<CacheLockOptions, LoadLockSettings>(
  cacheOption,
  'cache option',
  'lock.',
  { lease: 5_000, renew: true, wait: 10_000, onTimeout: 'stale' },
  {
    lease: loadLockSetting('lease', timer(100)),
    renew: loadLockSetting('renew', trueOrFalse),
    wait: loadLockSetting('wait', timer(0)),
    onTimeout: loadLockSetting('onTimeout', oneOf('stale', 'load', 'throw')),
  },
);

/** The settings of a cache whose module gives no `defaults`. */
export const DEFAULT_ENTRY_SETTINGS: EntrySettings = {
  ...LOAD_LOCK_OPTIONS.defaults,
  ttl: 300_000,
  jitter: 0.1,
  nullTtl: 30_000,
  staleTtl: 0,
  staleIfError: true,
  refreshAhead: undefined,
  restAfterError: 1_000,
  softTimeout: 0,
  loaderTimeout: 30_000,
  strong: false,
  barrier: 0,
  tags: [],
  failOpen: true,
  bloom: undefined,
  revive: undefined,
  expect: undefined,
  forceFresh: false,
  tagPrefix: '',
  template: undefined,
};

/** What `ttl: Infinity` stands for, in ms: a hundred years, so that times stay numbers everywhere. */
const FOR_EVER = 100 * 365 * 24 * 60 * 60 * 1_000;
/** From here on, what is left of a time counts as without end. */
const NEVER_ENDS = FOR_EVER / 2;

/** A `ttl` in ms; `Infinity` is one. @throws CacheConfigError */
export function lifetime(value: unknown, option: string, checks: OptionChecks, least = 1): number {
  if (value === Infinity) return FOR_EVER;
  if (value === 0 && least > 0) {
    throw checks.refused(
      option,
      value,
      "milliseconds (1 or more), a duration such as '5m', or Infinity for a value that never expires",
    );
  }
  return checks.milliseconds(option, value, least);
}

/** What is left of a time, as callers get it. */
export function lifetimeLeft(left: number): number {
  return left >= NEVER_ENDS ? Infinity : left;
}

const consistency = oneOf('eventual', 'strong');
const onRedisError = oneOf('open', 'throw');
const setting = settingOf<EntrySettings>();

const RULES = {
  ttl: setting('ttl', lifetime),
  jitter: setting('jitter', instance(isJitter, 'a part of ttl from 0 to 0.5')),
  nullTtl: setting('nullTtl', duration(0)),
  staleTtl: setting('staleTtl', duration(0)),
  staleIfError: setting('staleIfError', trueOrFalse),
  refreshAhead: setting('refreshAhead', refreshAhead),
  restAfterError: setting('restAfterError', timer(0)),
  softTimeout: setting('softTimeout', timer(0)),
  loaderTimeout: setting('loaderTimeout', timer(1)),
  lock: (settings, value, option) => {
    Object.assign(settings, loadLock(value, option, settings));
  },
  consistency: setting('strong', (value, option, checks) => consistency(value, option, checks) === 'strong'),
  barrier: setting('barrier', duration(0)),
  tags: setting('tags', (value) => requireTags(value)),
  onRedisError: setting('failOpen', (value, option, checks) => onRedisError(value, option, checks) === 'open'),
  bloom: setting('bloom', instance(isBloomOption, '{ filter, id } with a filter of CacheService.bloomFilter')),
  revive: setting('revive', callable<(stored: unknown) => unknown>()),
  expect: setting('expect', oneOf('hit', 'miss')),
} satisfies ConstructorParameters<typeof OptionTable<CacheEntryOptions, EntrySettings>>[4];

const ENTRY_OPTIONS = new OptionTable<CacheEntryOptions, EntrySettings>(
  cacheOption,
  'cache option',
  '',
  DEFAULT_ENTRY_SETTINGS,
  RULES,
);

const READ_OPTIONS = new OptionTable<ReadOptions, EntrySettings>(
  cacheOption,
  'cache option',
  '',
  DEFAULT_ENTRY_SETTINGS,
  {
    ...RULES,
    forceFresh: setting('forceFresh', trueOrFalse),
    // Checked here, but read by the call itself.
    signal: (_, value, option, checks) => {
      abortSignal(value, option, checks);
    },
  },
);

/** What a call by hand does, which decides what it takes: it would ignore other options, such as `tags` of `del`. */
const BY_HAND = {
  read: takes('onRedisError'),
  deletion: takes('barrier', 'onRedisError'),
  store: takes('ttl', 'jitter', 'nullTtl', 'staleTtl', 'tags', 'onRedisError'),
};

export type ByHand = keyof typeof BY_HAND;

function takes(...names: readonly (keyof typeof RULES)[]) {
  const rules = Object.fromEntries(names.map((name) => [name, RULES[name]])) as object;
  return new OptionTable<object, EntrySettings>(cacheOption, 'option of this call', '', DEFAULT_ENTRY_SETTINGS, rules);
}

/** As `entrySettings`, for a call that takes some of the options only. */
export function settingsByHand(call: ByHand, options: CacheEntryOptions, base: EntrySettings): EntrySettings {
  return BY_HAND[call].settings(requireObject(options), base);
}

/** Options that are not given are as in `base`. @throws CacheConfigError with the option, the value and the remedy */
export function entrySettings(options: CacheEntryOptions | undefined, base?: EntrySettings): EntrySettings {
  return options === undefined
    ? (base ?? DEFAULT_ENTRY_SETTINGS)
    : ENTRY_OPTIONS.settings(requireObject(options), base);
}

/** As `entrySettings`, for a read of keys that begin with `keyPrefix`. */
export function readSettings(options: ReadOptions | undefined, base: EntrySettings, keyPrefix: string): EntrySettings {
  return withTagsOf(
    keyPrefix,
    options === undefined
      ? base
      : { ...READ_OPTIONS.settings(requireObject(options), base), template: templateOf(options) },
  );
}

/** Prepends the prefix of a namespace to its tags, which are separate from those of others, as its keys are. */
export function withTagsOf(keyPrefix: string, settings: EntrySettings): EntrySettings {
  if (keyPrefix === '') return settings;
  return { ...settings, tags: settings.tags.map((tag) => keyPrefix + tag), tagPrefix: keyPrefix };
}

/** @throws CacheConfigError for a value that is not a list of tags */
export function requireTags(value: unknown): readonly string[] {
  if (!Array.isArray(value)) throw cacheOption.refused('tags', value, 'a list of names');
  for (const tag of value as readonly unknown[]) {
    if (whyNotAName(tag) !== undefined) {
      throw cacheOption.refused('tags', tag, 'names of one character or more, of whole characters');
    }
  }
  // The caller may change its list later.
  return [...(value as readonly string[])];
}

/** How much longer (ms) Redis keeps a tag than the values that have it. */
const TAG_MARGIN = 60_000;

/** Milliseconds for which a value counts as fresh, at most `ttl`; 0 for a value that must not be stored. */
export function timeToLive(value: unknown, { ttl, nullTtl, jitter }: EntrySettings, ofLoader = ttl): number {
  const given = isAbsent(value) ? Math.min(ofLoader, nullTtl) : ofLoader;
  // Shortens it by at most the part `jitter`, so that values stored together do not expire together.
  return given === FOR_EVER ? given : Math.ceil(given * (1 - jitter * Math.random()));
}

/** The `ttl` of a value where it is another one than that of the options, with their `jitter`; else `undefined`. */
export function ownTtl(ofValue: number, { ttl, jitter }: EntrySettings): number | undefined {
  return ofValue > ttl || ofValue < ttl * (1 - jitter) ? ofValue : undefined;
}

/** Milliseconds for which a value is kept beyond its `ttl`; 0 for an absent value, which is never served stale. */
export function staleTtlOf(value: unknown, { staleTtl }: Pick<EntrySettings, 'staleTtl'>): number {
  return isAbsent(value) ? 0 : staleTtl;
}

/** Milliseconds for which Redis keeps the tags of a value that it keeps for `kept` ms. */
export function tagMemory(kept: number): number {
  return kept + TAG_MARGIN;
}

/** Milliseconds after a load lease for which Redis surely keeps the tags of the options. */
export function keptByLease({ ttl, staleTtl }: EntrySettings): number {
  return ttl + staleTtl + TAG_MARGIN / 2;
}

const TIMES = ['ttl', 'nullTtl', 'staleTtl'] as const satisfies (keyof CacheEntryOptions)[];

/** A warning for each time below one second that is given as a bare number: other caches count in seconds. */
export function secondsTaken(options: Readonly<Record<string, unknown>>, prefix = ''): string[] {
  return TIMES.flatMap((time) => {
    const value = options[time];
    const name = prefix + time;
    if (typeof value !== 'number' || value <= 0 || value >= 1_000) return [];
    return [
      `"${name}: ${value}" is ${value} milliseconds; write '${value}s' where seconds are meant, else '${value}ms'`,
    ];
  });
}

/** The same for the options of the module. */
export function secondsTakenByModule({ defaults, l1 }: CacheOptions): string[] {
  return [...secondsTaken({ ...defaults }, 'cache.defaults.'), ...secondsTaken({ ...l1 }, 'cache.l1.')];
}

function requireObject(options: object): object {
  return cacheOption.object('options', options, 'an object of cache options');
}

function isJitter(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= 0.5;
}

function isBloomOption(value: unknown): value is NonNullable<CacheEntryOptions['bloom']> {
  const bloom = value as Partial<NonNullable<CacheEntryOptions['bloom']>> | null;
  return typeof bloom?.filter?.mayHave === 'function' && typeof bloom.id === 'string';
}

function refreshAhead(value: unknown): EntrySettings['refreshAhead'] {
  if (value === false) return undefined;
  if (value === true) return { beta: 1 };
  if (typeof value === 'number' && value > 0 && value < 1) return { part: value };
  if (typeof value === 'object' && value !== null && 'beta' in value) {
    const { beta } = value;
    if (typeof beta === 'number' && beta > 0) return { beta };
  }
  const remedy = 'true, false, a part of ttl between 0 and 1, or { beta } greater than 0';
  throw cacheOption.refused('refreshAhead', value, remedy);
}

function loadLock(value: unknown, option: string, present: LoadLockSettings): Partial<LoadLockSettings> {
  if (value === false) return { wait: 0, onTimeout: 'load' };
  if (value === true) {
    const { wait, onTimeout } = LOAD_LOCK_OPTIONS.defaults;
    return present.wait > 0 ? {} : { wait, onTimeout };
  }
  const { lease, renew, wait, onTimeout } = present;
  const given = cacheOption.object(option, value, 'true, false or { lease, renew, wait, onTimeout }');
  return LOAD_LOCK_OPTIONS.settings(given, { lease, renew, wait, onTimeout });
}

function isAbsent(value: unknown): boolean {
  return value === null || value === undefined;
}
