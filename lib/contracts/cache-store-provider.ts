import type { CacheStore } from './cache-store.js';

/** A store that can keep cached values, too: a `LockBackend` implements it where locks and cache share one place. */
export interface CacheStoreProvider {
  /** Opens the store of one module. The module closes it before it closes the backend. */
  openCacheStore(prefix: string | undefined): CacheStore;
}

/** Whether a backend of locks can keep the cache of its module. */
export function isCacheStoreProvider(backend: object): backend is CacheStoreProvider {
  return typeof (backend as Partial<CacheStoreProvider>).openCacheStore === 'function';
}
