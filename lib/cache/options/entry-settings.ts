import { whyNotAName } from '../../keys/key-part.js';
import { CacheConfigError } from '../../errors/cache-errors.js';
import type { CacheEntryOptions, ReadOptions } from './cache-options.js';
import { LONGEST_DELAY, milliseconds, refused } from './cache-durations.js';

/** `CacheEntryOptions` checked, complete, and in ms. */
export interface EntrySettings {
  readonly ttl: number;
  readonly jitter: number;
  readonly nullTtl: number;
  readonly staleTtl: number;
  readonly staleIfError: boolean;
  /** XFetch with this beta, or once this part of the ttl has passed. */
  readonly refreshAhead: { readonly beta: number } | { readonly part: number } | undefined;
  readonly restAfterError: number;
  readonly softTimeout: number;
  readonly loaderTimeout: number;
  readonly lease: number;
  readonly renew: boolean;
  readonly wait: number;
  readonly onTimeout: 'stale' | 'load' | 'throw';
  readonly strong: boolean;
  readonly barrier: number;
  readonly tags: readonly string[];
  readonly failOpen: boolean;
  readonly bloom: CacheEntryOptions['bloom'];
  readonly revive: ((stored: unknown) => unknown) | undefined;
  readonly forceFresh: boolean;
  /** What tags that the loader names begin with in the store; those above have it already. */
  readonly tagPrefix: string;
}

const DEFAULTS: EntrySettings = {
  ttl: 300_000,
  jitter: 0.1,
  nullTtl: 30_000,
  staleTtl: 0,
  staleIfError: true,
  refreshAhead: undefined,
  restAfterError: 1_000,
  softTimeout: 0,
  loaderTimeout: 30_000,
  lease: 5_000,
  renew: true,
  wait: 10_000,
  onTimeout: 'stale',
  strong: false,
  barrier: 0,
  tags: [],
  failOpen: true,
  bloom: undefined,
  revive: undefined,
  forceFresh: false,
  tagPrefix: '',
};

const OPTION_NAMES = new Set<string>([
  'ttl',
  'jitter',
  'nullTtl',
  'staleTtl',
  'staleIfError',
  'refreshAhead',
  'restAfterError',
  'softTimeout',
  'loaderTimeout',
  'lock',
  'consistency',
  'barrier',
  'tags',
  'onRedisError',
  'bloom',
  'revive',
] satisfies (keyof CacheEntryOptions)[]);

const READ_OPTION_NAMES = new Set<string>([
  ...OPTION_NAMES,
  ...(['signal', 'forceFresh'] satisfies (keyof ReadOptions)[]),
]);

const LEAST_LEASE = 100;

/** What is `undefined` counts as not given. @throws CacheConfigError naming the option, the value and the remedy */
export function entrySettings(
  options: CacheEntryOptions | undefined,
  base: EntrySettings = DEFAULTS,
  names: ReadonlySet<string> = OPTION_NAMES,
): EntrySettings {
  if (options === undefined) return base;
  if (typeof options !== 'object' || options === null) throw refused('options', options, 'an object of cache options');
  for (const name in options) if (!names.has(name)) throw unknownOption(name, names);
  const { lock, jitter, staleIfError, refreshAhead, consistency, tags, onRedisError, revive } = options;
  const settings: EntrySettings = {
    ttl: options.ttl === undefined ? base.ttl : milliseconds('ttl', options.ttl, 1),
    jitter: jitter ?? base.jitter,
    nullTtl: options.nullTtl === undefined ? base.nullTtl : milliseconds('nullTtl', options.nullTtl, 0),
    staleTtl: options.staleTtl === undefined ? base.staleTtl : milliseconds('staleTtl', options.staleTtl, 0),
    staleIfError: staleIfError ?? base.staleIfError,
    refreshAhead: refreshAhead === undefined ? base.refreshAhead : refresh(refreshAhead),
    restAfterError:
      options.restAfterError === undefined ? base.restAfterError : timer('restAfterError', options.restAfterError, 0),
    softTimeout: options.softTimeout === undefined ? base.softTimeout : timer('softTimeout', options.softTimeout, 0),
    loaderTimeout:
      options.loaderTimeout === undefined ? base.loaderTimeout : timer('loaderTimeout', options.loaderTimeout, 1),
    ...locking(lock, base),
    strong: consistency === undefined ? base.strong : consistency === 'strong',
    barrier: options.barrier === undefined ? base.barrier : milliseconds('barrier', options.barrier, 0),
    tags: tags ?? base.tags,
    failOpen: onRedisError === undefined ? base.failOpen : onRedisError === 'open',
    bloom: options.bloom ?? base.bloom,
    revive: revive ?? base.revive,
    forceFresh: base.forceFresh,
    tagPrefix: base.tagPrefix,
  };
  check(settings, options);
  return settings;
}

/** As `entrySettings`, for a read of keys that begin with `keyPrefix`. */
export function readSettings(options: ReadOptions | undefined, base: EntrySettings, keyPrefix: string): EntrySettings {
  const settings = withTagsOf(keyPrefix, entrySettings(options, base, READ_OPTION_NAMES));
  const { forceFresh = false, signal } = options ?? {};
  if (typeof forceFresh !== 'boolean') throw refused('forceFresh', forceFresh, 'true or false');
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw refused('signal', signal, 'an AbortSignal');
  return forceFresh ? { ...settings, forceFresh } : settings;
}

/** The tags are those of a namespace, as its keys are. */
export function withTagsOf(keyPrefix: string, settings: EntrySettings): EntrySettings {
  if (keyPrefix === '') return settings;
  return { ...settings, tags: settings.tags.map((tag) => keyPrefix + tag), tagPrefix: keyPrefix };
}

function check(
  { jitter, staleIfError, tags, bloom, revive }: EntrySettings,
  { consistency, onRedisError }: CacheEntryOptions,
): void {
  if (!(typeof jitter === 'number' && jitter >= 0 && jitter <= 0.5)) {
    throw refused('jitter', jitter, 'a part of ttl from 0 to 0.5');
  }
  if (typeof staleIfError !== 'boolean') throw refused('staleIfError', staleIfError, 'true or false');
  if (consistency !== undefined && consistency !== 'eventual' && consistency !== 'strong') {
    throw refused('consistency', consistency, "'eventual' or 'strong'");
  }
  if (onRedisError !== undefined && onRedisError !== 'open' && onRedisError !== 'throw') {
    throw refused('onRedisError', onRedisError, "'open' or 'throw'");
  }
  if (bloom !== undefined && (typeof bloom?.filter?.mayHave !== 'function' || typeof bloom.id !== 'string')) {
    throw refused('bloom', bloom, '{ filter, id } with a filter of CacheService.bloomFilter');
  }
  if (revive !== undefined && typeof revive !== 'function') throw refused('revive', revive, 'a function');
  requireTags(tags);
}

export function requireTags(tags: readonly string[]): void {
  if (!Array.isArray(tags)) throw refused('tags', tags, 'a list of names');
  for (const tag of tags as readonly unknown[]) {
    if (whyNotAName(tag) !== undefined)
      throw refused('tags', tag, 'names of one character or more, of whole characters');
  }
}

function timer(option: string, value: NonNullable<CacheEntryOptions['ttl']>, least: number): number {
  return milliseconds(option, value, least, LONGEST_DELAY);
}

function refresh(value: NonNullable<CacheEntryOptions['refreshAhead']>): EntrySettings['refreshAhead'] {
  if (value === false) return undefined;
  if (value === true) return { beta: 1 };
  if (typeof value === 'number' && value > 0 && value < 1) return { part: value };
  if (typeof value === 'object' && typeof value.beta === 'number' && value.beta > 0) return { beta: value.beta };
  throw refused('refreshAhead', value, 'true, false, a part of ttl between 0 and 1, or { beta } greater than 0');
}

function locking(
  lock: CacheEntryOptions['lock'],
  { lease, renew, wait, onTimeout }: EntrySettings,
): Pick<EntrySettings, 'lease' | 'renew' | 'wait' | 'onTimeout'> {
  if (lock === undefined) return { lease, renew, wait, onTimeout };
  if (lock === false) return { lease, renew, wait: 0, onTimeout: 'load' };
  if (lock === true) {
    if (wait > 0) return { lease, renew, wait, onTimeout };
    return { lease, renew, wait: DEFAULTS.wait, onTimeout: DEFAULTS.onTimeout };
  }
  if (typeof lock !== 'object' || lock === null)
    throw refused('lock', lock, 'true, false or { lease, renew, wait, onTimeout }');
  const given = { renew: lock.renew ?? renew, onTimeout: lock.onTimeout ?? onTimeout };
  if (given.onTimeout !== 'stale' && given.onTimeout !== 'load' && given.onTimeout !== 'throw') {
    throw refused('lock.onTimeout', given.onTimeout, "'stale', 'load' or 'throw'");
  }
  if (typeof given.renew !== 'boolean') throw refused('lock.renew', given.renew, 'true or false');
  return {
    ...given,
    lease: lock.lease === undefined ? lease : timer('lock.lease', lock.lease, LEAST_LEASE),
    wait: lock.wait === undefined ? wait : timer('lock.wait', lock.wait, 0),
  };
}

function unknownOption(name: string, names: ReadonlySet<string>): CacheConfigError {
  return new CacheConfigError(`Unknown cache option "${name}"; give any of ${[...names].join(', ')}`);
}
