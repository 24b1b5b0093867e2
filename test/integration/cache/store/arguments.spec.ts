import { CacheConfigError, type CacheService, memory } from 'nest-redis-lock';
import { testServices } from 'nest-redis-lock/testing';

/** As a caller without types calls them. */
type Untyped = Record<keyof CacheService, (...args: unknown[]) => unknown>;

const { cache, close } = testServices({ backend: memory(), cache: {} });
afterAll(close);

const write = async () => 'written';
const calls: [method: keyof CacheService, args: unknown[], refusal: RegExp][] = [
  ['getOrSet', ['k'], /Option "loader" is undefined; give a function/],
  ['getOrSetMany', [['k']], /Option "loader" is undefined; give a function/],
  ['getOrSetMany', ['k', write], /Option "keys" is "k"; give a list of keys/],
  ['mget', [], /Option "keys" is undefined; give a list of keys/],
  ['mset', [], /Option "values" is undefined; give an object of values, or a Map/],
  ['mutate', ['k'], /Option "write" is undefined; give a function/],
  ['flush', ['k'], /Option "write" is undefined; give a function/],
  ['doubleDelete', ['k'], /Option "write" is undefined; give a function/],
  ['doubleDelete', ['k', write], /Option "options" is undefined; give an object with the delay/],
  ['doubleDeleteByPrefix', ['k', write], /Option "options" is undefined; give an object with the delay/],
  ['bloomFilter', ['x'], /Option "options" is undefined; give an object with its capacity/],
];

it.each(calls)('%s refuses %j by naming what is missing', async (method, args, refusal) => {
  const call = async () => (cache as unknown as Untyped)[method](...args);
  await expect(call()).rejects.toThrow(refusal);
  await expect(call()).rejects.toBeInstanceOf(CacheConfigError);
});
