import { type LockBackend, memory } from 'nest-redis-lock';
import { lockBackendCases, type LockBackendWorld } from 'nest-redis-lock/testing';
import { failTheirCases } from './wrong-backends.js';
import { CACHE_CASES, WRONG_CACHE_STORES, wrongCacheStore } from './wrong-cache-stores.js';
import { WRONG_IN_MEMORY } from './wrong-in-memory.js';

failTheirCases(WRONG_IN_MEMORY);

it.each(WRONG_CACHE_STORES)('a cache store fails a case that $what', async (wrong) => {
  const store = wrongCacheStore(wrong);
  await expect(CACHE_CASES[wrong.fails](store, store, 'key')).rejects.toThrow(wrong.saying);
});

it('shows a case as skipped whose role the backend leaves out', () => {
  const world: LockBackendWorld = { open: (): LockBackend => memory(), without: ['queue', 'downgrade'] };
  const skipped = lockBackendCases(world).filter(({ missing }) => missing.includes('downgrade'));
  expect(skipped.length).toBeGreaterThan(5);
});
