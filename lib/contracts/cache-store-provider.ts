import type { CacheStore } from './cache-store.js';

/** A `LockBackend` that can also keep cached values, in the same place as the locks. */
export interface CacheStoreProvider {
  /** Opens the store of one module. The module closes it before it closes the backend. */
  openCacheStore(prefix: string | undefined): CacheStore;
}

/** Whether a lock backend can also keep the cache of its module. */
export function isCacheStoreProvider(backend: object): backend is CacheStoreProvider {
  return typeof (backend as Partial<CacheStoreProvider>).openCacheStore === 'function';
}
