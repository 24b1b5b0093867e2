import type { Duration, LockBackend, LockOptions, RedisLockModuleOptions } from 'nest-redis-lock';
import { memory } from 'nest-redis-lock/memory';
import { cacheSettings } from '../../lib/cache/options/cache-options.js';
import { entrySettings } from '../../lib/cache/options/entry-settings.js';
import { CacheConfigError } from '../../lib/errors/cache-errors.js';
import { LockConfigError, LockTimeoutError } from '../../lib/errors/lock-errors.js';
import { resolveLockOptions } from '../../lib/lock/options/lock-options.js';
import { exponentialBackoff, fixedDelay, limitedRetries } from '../../lib/lock/options/retry-strategy.js';
import { fixedOptions, OptionResolver } from '../../lib/options/fixed-options.js';
import { lockOption } from '../../lib/options/option-checks.js';
import { resolveModuleOptions } from '../../lib/redis-lock.options.js';
import { eventually } from '../support/eventually.js';
import { startLockServices } from '../support/lock-services.js';

describe('a duration', () => {
  it.each<[Duration, number]>([
    ['250ms', 250],
    ['30s', 30_000],
    ['1.5s', 1_500],
    ['5m', 300_000],
    ['2h', 7_200_000],
    ['1d', 86_400_000],
    ['1w', 604_800_000],
    [1_234.2, 1_235],
  ])('of %p is %d ms in every option of a lock', (given, expected) => {
    const options = { ttl: '3w', wait: given, maxHold: given, renew: { interval: given, timeout: given } } as const;
    const { wait, maxHold, renewal } = resolveLockOptions(options);
    expect(wait).toBe(expected);
    expect(maxHold).toBe(expected);
    expect(renewal).toEqual({ interval: expected, timeout: expected });
    expect(resolveLockOptions({ ttl: given, renew: false }).ttl).toBe(expected);
  });

  it('is taken from the defaults of the module, too', () => {
    const { ttl, wait, maxHold } = resolveLockOptions(
      { wait: '1s' },
      resolveLockOptions({ ttl: '10s', wait: '2s', maxHold: '1m' }),
    );
    expect({ ttl, wait, maxHold }).toEqual({ ttl: 10_000, wait: 1_000, maxHold: 60_000 });
  });

  it('is taken by the options of the module', () => {
    const { commandTimeout, shutdownGrace } = resolveModuleOptions({
      backend: memory(),
      commandTimeout: '750ms',
      shutdownGrace: '10s',
    });
    expect({ commandTimeout, shutdownGrace }).toEqual({ commandTimeout: 750, shutdownGrace: 10_000 });
  });

  it.each(['30x', '30', '', 's', '-1s', '1e3s', ' 30s', '30 s', '30S', '1 second', 'Infinity', '٣s'])(
    'is not %p',
    (value) => {
      for (const option of ['ttl', 'wait', 'maxHold'] as const) {
        const options = { [option]: value } as LockOptions;
        expect(() => resolveLockOptions(options)).toThrow(LockConfigError);
        expect(() => resolveLockOptions(options)).toThrow(
          new RegExp(`Option "${option}" is "${value}"; give .*milliseconds.*'30s'`),
        );
      }
      for (const option of ['interval', 'timeout']) {
        const options = { renew: { [option]: value } } as LockOptions;
        expect(() => resolveLockOptions(options)).toThrow(`Option "renew.${option}" is "${value}"`);
      }
      for (const option of ['commandTimeout', 'shutdownGrace']) {
        const options = { backend: memory(), [option]: value } as RedisLockModuleOptions;
        expect(() => resolveModuleOptions(options)).toThrow(`Option "${option}" is "${value}"`);
      }
      expect(() => fixedDelay(value as Duration)).toThrow(`"fixedDelay(delay)" is "${value}"`);
      expect(() => exponentialBackoff({ min: value as Duration })).toThrow(
        `"exponentialBackoff({ min })" is "${value}"`,
      );
      expect(() => exponentialBackoff({ max: value as Duration })).toThrow(
        `"exponentialBackoff({ max })" is "${value}"`,
      );
    },
  );

  it('says which limits it has', () => {
    expect(() => resolveLockOptions({ ttl: '50ms' })).toThrow(/"ttl" is "50ms"; give milliseconds \(from 100 to/);
    expect(() => resolveLockOptions({ maxHold: '52w' })).toThrow(/"maxHold" is "52w"; give .*to 2147483647/);
    expect(() => resolveLockOptions({ ttl: '1s', renew: { interval: '900ms' } })).toThrow(
      'Option "renew.interval" is "900ms"; give less than two thirds of ttl (1000)',
    );
  });

  it('may be endless only for "wait" and "maxHold"', () => {
    expect(resolveLockOptions({ wait: Infinity }).wait).toBe(Infinity);
    expect(() => resolveLockOptions({ ttl: Infinity })).toThrow('Option "ttl" is Infinity');
  });

  it('may take a limit of the defaults away', () => {
    const base = resolveLockOptions({ maxHold: '1m', minHold: '1s' });
    expect(base).toMatchObject({ maxHold: 60_000, minHold: 1_000 });
    expect(resolveLockOptions({ maxHold: Infinity, minHold: 0 }, base)).toMatchObject({
      maxHold: undefined,
      minHold: 0,
    });
  });

  it('paces a retry strategy', () => {
    const state = { attempt: 1 };
    expect(fixedDelay('2s')().next(state)).toEqual({ done: false, value: 2_000 });
    expect(limitedRetries(1, fixedDelay('1s'))().next(state)).toEqual({ done: false, value: 1_000 });
    const { value } = exponentialBackoff({ min: '10s', max: '10s' })().next(state);
    expect(value).toBe(10_000);
    expect(() => exponentialBackoff({ min: '2s', max: '1s' })).toThrow(/max.*1000.*min.*2000/);
  });

  it.each([null, 5, 'x', [], new Map(), { least: 5 }])('make no retry strategy of %p', (options) => {
    expect(() => exponentialBackoff(options as object)).toThrow(LockConfigError);
    expect(() => limitedRetries(1, options as never)).toThrow(LockConfigError);
  });

  it('extends a lease', async () => {
    await using app = await startLockServices({ backend: memory() });
    const lock = await app.locks.acquire('extended', { ttl: '1s', renew: false });
    await lock.extend('10s');
    expect(lock.remaining()).toBeGreaterThan(5_000);
    await expect(lock.extend('10x' as Duration)).rejects.toThrow('Option "ttl" is "10x"');
    await expect(lock.extend(Number.NaN)).rejects.toThrow('Option "ttl" is NaN');
    await lock.release();
  });

  it('bounds a wait', async () => {
    await using app = await startLockServices({ backend: memory(), defaults: { wait: '20ms' } });
    const held = await app.locks.acquire('busy');
    await expect(app.locks.acquire('busy')).rejects.toThrow(LockTimeoutError);
    const waiting = app.locks.acquire('busy', { wait: '1h' });
    await eventually(async () => (await app.locks.inspect('busy'))?.waiting === 1);
    await held.release();
    await (await waiting).release();
  });
});

describe('the watchdog option', () => {
  it.each([
    [{ intervall: 10 }, 'Unknown lock option "renew.intervall"; give any of renew.interval, renew.timeout'],
    [{ every: '1s', interval: '1s' }, 'Unknown lock option "renew.every"'],
  ])('refuses %p', (renew, message) => {
    expect(() => resolveLockOptions({ renew } as LockOptions)).toThrow(message);
  });
});

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

it.each<[given: unknown, shown: string]>([
  ['', '""'],
  ['localhost:6379', '"localhost:6379"'],
  ['zk1:2181,zk2:0', '"zk1:2181,zk2:0"'],
  [['localhost:2379', 'http://root:secret@h:1'], '["localhost:2379", "http://..."]'],
  ['http://user:secret@host', '"http://..."'],
  ['redis:/:secret@host:6379', '"..."'],
  ['user:secret@host', '"..."'],
  ['secret', '"..."'],
  ['host=localhost password=secret', '"..."'],
  [7, '7'],
])('shows of a connection that is refused, as %j, what can be no password', (given, shown) => {
  expect(lockOption.refusedConnection('redis', given, 'a URL').message).toBe(`Option "redis" is ${shown}; give a URL`);
});

it.each([
  ['redis://user:12/secret@host', true],
  ['redis://user:12?secret@host', true],
  ['redis://user:12#secret@host', true],
  ['redis://user:secret@host/1', false],
  ['redis://user:sec%2Fret@host/1?name=a@b', false],
  ['redis://host', false],
])('%s ends in its password: %p', (url, isCut) => {
  const check = () => lockOption.requireWholePassword('redis', url);
  if (!isCut) expect(check).not.toThrow();
  else {
    expect(check).toThrow(
      new LockConfigError(
        'Option "redis" is a URL with "@" behind its host; give one whose password has its special characters ' +
          'percent-encoded, as "/" by %2F',
      ),
    );
  }
});

it('refuses a default backend that there is none of', () => {
  const defaults = { backend: 'nope' };
  expect(() => resolveModuleOptions({ ...REDIS, defaults })).toThrow(
    new LockConfigError(`Option "defaults.backend" is "nope"; give a name of the module's "backends" (none)`),
  );
  const backends = { nope: memory() };
  expect(resolveModuleOptions({ ...REDIS, defaults, backends }).defaults.backend).toBe('nope');
});

it.each([
  ['backend', (old: LockBackend) => ({ backend: old })],
  ['backends.other', (old: LockBackend) => ({ ...REDIS, backends: { other: old } })],
])('refuses a backend of the earlier form as "%s", and names the remedy', (option, options) => {
  const old = { name: 'old', acquire: () => {}, ping: () => {} } as unknown as LockBackend;
  expect(() => resolveModuleOptions(options(old))).toThrow(
    new LockConfigError(
      `Option "${option}" is a backend of an earlier form, whose requests name the prefix; give it a method ` +
        'open(module) that returns an object with its calls: see docs/guide/writing-a-backend.md',
    ),
  );
});

/** Counts how often the option is read. */
function countedOptions() {
  let reads = 0;
  return {
    get ttl() {
      reads += 1;
      return 1_000;
    },
    get reads() {
      return reads;
    },
  };
}

const resolver = () => new OptionResolver((options: { readonly ttl: number }) => ({ ttl: options.ttl }));

it('resolves fixed options once for each service', () => {
  const options = fixedOptions(countedOptions());
  const [one, other] = [resolver(), resolver()];
  expect(one.settingsOf(options)).toBe(one.settingsOf(options));
  expect(options.reads).toBe(1);
  expect(other.settingsOf(options)).not.toBe(one.settingsOf(options));
  expect(options.reads).toBe(2);
});

it('resolves other options again once they have changed', () => {
  const options = { ttl: 1_000 };
  const service = resolver();
  expect(service.settingsOf(options).ttl).toBe(1_000);
  options.ttl = 2_000;
  expect(service.settingsOf(options).ttl).toBe(2_000);
});

it('resolves options that equal those of the call before only once', () => {
  const service = new OptionResolver((options: object) => ({ ...options }));
  const first = service.settingsOf({ ttl: 1, wait: 'x' });
  expect(service.settingsOf({ ttl: 1, wait: 'x' })).toBe(first);
  for (const other of [{ ttl: 1 }, { ttl: 1, wait: 'y' }, { ttl: 1, renew: 'x' }, { ttl: 1, wait: 'x', renew: true }]) {
    service.settingsOf({ ttl: 1, wait: 'x' });
    expect(service.settingsOf(other)).toEqual(other);
  }
});

it.each([undefined, null])('has %s refused, also after other options', (none) => {
  const service = new OptionResolver((options: object) => {
    if (options == null) throw new Error('no options');
    return { ...options };
  });
  service.settingsOf({ ttl: 1 });
  expect(() => service.settingsOf(none as unknown as object)).toThrow('no options');
});

it('resolves a list, an object and the accessors of a class with every call, as they may have changed', () => {
  const service = new OptionResolver((options: { tags?: readonly string[] }) => ({ tags: [...(options.tags ?? [])] }));
  const tags = ['one'];
  service.settingsOf({ tags });
  tags.push('other');
  expect(service.settingsOf({ tags }).tags).toEqual(['one', 'other']);

  class Options {
    get tags() {
      return tags;
    }
  }
  service.settingsOf({});
  expect(service.settingsOf(new Options()).tags).toEqual(tags);
});

it('lets the resolution refuse a value that is no object', () => {
  const service = new OptionResolver((options: object) => entrySettings(options));
  service.settingsOf({ ttl: 1 });
  for (const given of [null, 1, 'ttl'] as unknown as object[]) {
    expect(() => service.settingsOf(given)).toThrow(/Option "options" is .+; give an object of cache options/);
  }
});
