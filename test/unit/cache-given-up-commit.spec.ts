import { scriptedCache } from '../support/scripted-cache.js';

it.each(['throw', 'open'] as const)(
  "a load whose value could not be stored in time releases its lease: '%s'",
  async (onRedisError) => {
    using scripted = scriptedCache({ commandTimeout: 50, defaults: { onRedisError, lock: { lease: '10m' } } });
    const { cache, store } = scripted;
    store.commit = () => new Promise(() => {});
    const loading = cache.getOrSet('k', () => 'v1');
    if (onRedisError === 'open') expect(await loading).toBe('v1');
    else await expect(loading).rejects.toMatchObject({ code: 'CACHE_BACKEND' });
    const wish = { key: 'k', token: 'next', lease: 1_000, refresh: false, seen: undefined, waits: false };
    expect(await store.lease(wish)).toMatchObject({ status: 'leased' });
  },
);
