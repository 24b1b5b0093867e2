import { memory } from '../../lib/backends/memory/memory-lock-backend.js';
import { lockOption } from '../../lib/options/option-checks.js';
import { cacheSettings } from '../../lib/cache/options/cache-options.js';
import { entrySettings } from '../../lib/cache/options/entry-settings.js';
import { CacheConfigError } from '../../lib/errors/cache-errors.js';
import { LockConfigError } from '../../lib/errors/lock-errors.js';
import { resolveLockOptions } from '../../lib/lock/options/lock-options.js';
import { resolveModuleOptions } from '../../lib/redis-lock.options.js';

const REDIS = { redis: 'redis://localhost' };

it.each<[what: string, read: () => unknown, error: new (message: string) => Error, message: string]>([
  [
    'a module option',
    () => resolveModuleOptions({ ...REDIS, failFast: 1 } as never),
    LockConfigError,
    'Option "failFast" is 1; give true or false',
  ],
  [
    'a list of backends',
    () => resolveModuleOptions({ ...REDIS, backends: [] } as never),
    LockConfigError,
    'Option "backends" is a list; give an object of backends by their names',
  ],
  [
    'a map of backends',
    () => resolveModuleOptions({ ...REDIS, backends: new Map() } as never),
    LockConfigError,
    'Option "backends" is [object Map]; give an object of backends by their names',
  ],
  [
    'a lock option',
    () => resolveLockOptions({ order: 'lifo' } as never),
    LockConfigError,
    `Option "order" is "lifo"; give 'batched' or 'fifo'`,
  ],
  [
    'a cache option',
    () => cacheSettings({ maxValueBytes: 0 }),
    CacheConfigError,
    'Option "cache.maxValueBytes" is 0; give a whole number from 1 on',
  ],
  [
    'the breaker',
    () => cacheSettings({ breaker: { opens: 1 } } as never),
    CacheConfigError,
    'Unknown option "cache.breaker.opens"; give any of cache.breaker.errors, cache.breaker.open',
  ],
  [
    'the load lease',
    () => entrySettings({ lock: { leas: 1 } } as never),
    CacheConfigError,
    'Unknown cache option "lock.leas"; give any of lock.lease, lock.renew, lock.wait, lock.onTimeout',
  ],
  [
    'an option of a read that is null',
    () => entrySettings({ refreshAhead: null } as never),
    CacheConfigError,
    'Option "refreshAhead" is null; give true, false, ',
  ],
])('an error about %s names it, the value and the remedy', (_what, read, error, message) => {
  expect(read).toThrow(error);
  expect(read).toThrow(message);
});

it('options that are undefined are as in the defaults of the module', () => {
  const defaults = resolveLockOptions({ ttl: '10s', renew: { interval: '2s' }, order: 'fifo' });
  expect(resolveLockOptions({ ttl: undefined, wait: '1s' } as never, defaults)).toEqual({ ...defaults, wait: 1_000 });
});

it('the interval of renewals follows the ttl of the call, unless the module fixes it', () => {
  const intervalOf = (defaults: object) =>
    resolveLockOptions({ ttl: 3_000 }, resolveLockOptions(defaults)).renewal?.interval;
  expect(intervalOf({})).toBe(1_000);
  expect(intervalOf({ renew: { interval: 500 } })).toBe(500);
  expect(() => intervalOf({ renew: { interval: 5_000 } })).toThrow(
    'Option "renew.interval" is 5000; give less than two',
  );
});

it('accessors of a class count as options', () => {
  class Options {
    get ttl() {
      return '2s' as const;
    }
  }
  expect(resolveLockOptions(new Options()).ttl).toBe(2_000);
  expect(entrySettings(new Options()).ttl).toBe(2_000);
});

it('lock: true waits even if the module has turned it off', () => {
  const off = entrySettings({ lock: false });
  expect(off).toMatchObject({ wait: 0, onTimeout: 'load' });
  expect(entrySettings({ lock: true }, off)).toMatchObject({ wait: 10_000, onTimeout: 'stale' });
  expect(entrySettings({ lock: { wait: '1s' } }, off)).toMatchObject({ wait: 1_000, onTimeout: 'load' });
});

it.each([
  ['postgres://shop:secret@db/shop', '"postgres://...@db/shop"'],
  [['redis://:se/cr@et@cache'], 'redis://...@cache'],
  ['postgres://db/shop?user=shop&password=secret&ssl=true', '"postgres://db/shop?user=shop&password=...&ssl=true"'],
  ['redis://cache:6379', '"redis://cache:6379"'],
])('shows no password of a URL that was given for another option', (value, shown) => {
  expect(lockOption.refused('schema', value, 'a name').message).toBe(`Option "schema" is ${shown}; give a name`);
});

it('refuses a default backend that there is none of', () => {
  const defaults = { backend: 'nope' };
  expect(() => resolveModuleOptions({ ...REDIS, defaults })).toThrow(
    new LockConfigError(`Option "defaults.backend" is "nope"; give a name of the module's "backends" (none)`),
  );
  const backends = { nope: memory() };
  expect(resolveModuleOptions({ ...REDIS, defaults, backends }).defaults.backend).toBe('nope');
});
