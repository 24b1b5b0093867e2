import type { Duration, LockOptions, RedisLockModuleOptions } from 'nest-redis-lock';
import { memory } from '../../lib/backends/memory/memory-lock-backend.js';
import { LockConfigError, LockTimeoutError } from '../../lib/errors/lock-errors.js';
import { resolveLockOptions } from '../../lib/lock/options/lock-options.js';
import { exponentialBackoff, fixedDelay, limitedRetries } from '../../lib/lock/options/retry-strategy.js';
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
