import type { CacheService } from 'nest-redis-lock';

/** How long (ms) the loaders take. */
export const LOADER = 30;

const after = <T>(value: T) => new Promise<T>((resolve) => setTimeout(resolve, LOADER, value));
export const loaded = () => after('loaded');

/** Every kind of call, with what it answers when there is no Redis. */
export const CACHE_CALLS: Record<string, [(cache: CacheService) => Promise<unknown>, unknown]> = {
  getOrSet: [(cache) => cache.getOrSet('away', loaded), 'loaded'],
  'getOrSet with tags': [(cache) => cache.getOrSet('away', loaded, { tags: ['away'] }), 'loaded'],
  'getOrSet, strong': [(cache) => cache.getOrSet('away', loaded, { consistency: 'strong' }), 'loaded'],
  getOrSetMany: [(cache) => cache.getOrSetMany(['1', '2'], (keys) => after(keys)), ['1', '2']],
  get: [(cache) => cache.get('away'), undefined],
  mget: [(cache) => cache.mget(['away', 'too']), [undefined, undefined]],
  set: [(cache) => cache.set('away', 1), undefined],
  setIfAbsent: [(cache) => cache.setIfAbsent('away', 1), false],
  invalidate: [(cache) => cache.invalidate(['away', 'too']), undefined],
  mutate: [(cache) => cache.mutate('away', () => after('written')), 'written'],
  deleteByTag: [(cache) => cache.deleteByTag('away'), undefined],
  deleteByPrefix: [(cache) => cache.deleteByPrefix('away'), 0],
};

/** Those that reject then. */
export const THROWING: Record<string, (cache: CacheService) => Promise<unknown>> = {
  getOrSet: (cache) => cache.getOrSet('elsewhere', loaded, { onRedisError: 'throw' }),
  'getOrSet with tags': (cache) => cache.getOrSet('elsewhere', loaded, { onRedisError: 'throw', tags: ['a'] }),
  get: (cache) => cache.get('elsewhere', { onRedisError: 'throw' }),
  set: (cache) => cache.set('elsewhere', 1, { onRedisError: 'throw' }),
  invalidate: (cache) => cache.invalidate('elsewhere', { onRedisError: 'throw' }),
  mutate: (cache) => cache.mutate('elsewhere', async () => 1, { onRedisError: 'throw' }),
  deleteByTag: (cache) => cache.deleteByTag('elsewhere', { onRedisError: 'throw' }),
  deleteByPrefix: (cache) => cache.deleteByPrefix('elsewhere', { onRedisError: 'throw' }),
  incr: (cache) => cache.incr('elsewhere', { ttl: '1h' }),
  has: (cache) => cache.has('unknown'),
};
