import assert from 'node:assert/strict';
import { CacheService, memory } from 'nest-redis-lock';
import type { LockBackend } from 'nest-redis-lock/backend';
import type { CacheStoreProvider } from '../../../../lib/contracts/cache-store.js';
import { startLockApp, type LockApp } from '../../../support/lock-app.js';
import { lyingCache } from '../../../support/lying-backend.js';
import { withMembers } from '../../../support/open-backend.js';

type Call = (cache: CacheService) => Promise<unknown>;

const cacheOf = ({ app }: LockApp) => app.get(CacheService);
const filter = (cache: CacheService) => cache.bloomFilter('ids', { capacity: 100 });
const rebuild: Call = (cache) => filter(cache).rebuild(() => ['1'], { settle: 0 });
const load: Call = (cache) => cache.getOrSet('key', async () => 'loaded');
const member = 'member';

const CALLS: readonly (readonly [string, Call])[] = [
  ['read', (cache) => cache.has('key')],
  ['lease', load],
  ['take', (cache) => cache.getDel('key')],
  ['set', (cache) => cache.set('key', 1)],
  ['increment', (cache) => cache.incr('count', { ttl: '1m' })],
  ['expire', (cache) => cache.expire('key', '1m')],
  ['ttl', (cache) => cache.ttl('key')],
  ['inspect', (cache) => cache.inspect('key')],
  ['beginTags', (cache) => cache.set('key', 1, { tags: ['tag'] })],
  ['invalidate', (cache) => cache.del('key')],
  ['deleteMatching', (cache) => cache.deleteByPrefix('key')],
  ['sets.add', (cache) => cache.sets.add('set', member, { ttl: '1m' })],
  ['sets.remove', (cache) => cache.sets.remove('set', member)],
  ['sets.has', (cache) => cache.sets.has('set', member)],
  ['sets.members', (cache) => cache.sets.members('set')],
  ['expiringSets.add', (cache) => cache.expiringSet.add('set', member, '1m')],
  ['expiringSets.remove', (cache) => cache.expiringSet.remove('set', member)],
  ['expiringSets.has', (cache) => cache.expiringSet.has('set', member)],
  ['expiringSets.members', (cache) => cache.expiringSet.members('set')],
  ['expiringSets.size', (cache) => cache.expiringSet.size('set')],
  ['bits.beginRebuild', rebuild],
  ['bits.addToRebuild', rebuild],
  ['bits.finishRebuild', rebuild],
];

const NONE = [undefined, {}, 'text', [{}], Number.NaN, { status: 'busy' }, { status: 'leased' }];

it.each(CALLS)('what is no answer to %s fails the call by an error of the cache', async (method, call) => {
  for (const answer of NONE) {
    await using app = await startLockApp({
      backend: lyingCache(method, answer),
      cache: { defaults: { onRedisError: 'throw' } },
    });
    await expect(call(cacheOf(app))).rejects.toMatchObject({
      code: 'CACHE_BACKEND',
      message: expect.stringMatching(/: it answered (undefined|\{|'text'|\[|NaN)/) as string,
    });
  }
});

it.each([
  [],
  [
    { version: 1, begun: true },
    { version: 2, begun: true },
  ],
])('a store must answer for each tag it was asked about: %j', async (...answer) => {
  await using app = await startLockApp({
    backend: lyingCache('beginTags', answer),
    cache: { defaults: { onRedisError: 'throw' } },
  });
  await expect(cacheOf(app).set('key', 1, { tags: ['tag'] })).rejects.toMatchObject({ code: 'CACHE_BACKEND' });
});

it.each(['text', { status: 'busy' }])('reads go on without a store that answers %j, and say so', async (answer) => {
  const backend = lyingCache('readOrLease', answer);
  await using app = await startLockApp({ backend, cache: {} });
  const cache = cacheOf(app);
  const keys = Array.from({ length: 30 }, (_, index) => `key ${index}`);
  for (const key of keys) await expect(cache.getOrSet(key, async () => key)).resolves.toBe(key);
  expect(app.logger.matching(/^Cache store "memory": readOrLease failed: it answered/)).toHaveLength(1);
});

it('does not take a store that answers what it should not for one that does not answer', async () => {
  const backend = lyingCache('ttl', 'text');
  await using app = await startLockApp({ backend, cache: { breaker: { errors: 2, open: '1m' } } });
  const cache = cacheOf(app);
  for (let call = 0; call < 5; call++) await expect(cache.ttl('key')).rejects.toThrow('it answered');
  await cache.set('key', 1);
  await expect(cache.get('key')).resolves.toBe(1);
});

it('an application whose store of the cache fails to close has ended', async () => {
  const honest = memory() as LockBackend & CacheStoreProvider;
  const openCacheStore = (prefix: string | undefined) =>
    withMembers(honest.openCacheStore(prefix), { close: () => assert.fail('no way') });
  const backend = withMembers(honest, { openCacheStore });
  const app = await startLockApp({ backend, cache: {} });
  const cache = cacheOf(app);
  await cache.set('key', 1);
  await app.close();
  expect(cache.closed).toBe(true);
  expect(app.logger.matching(/no way/)).toHaveLength(1);
});
