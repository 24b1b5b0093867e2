import type { CacheStore } from './contracts/cache-store.js';
import { isCacheStoreProvider } from './contracts/cache-store-provider.js';
import type { LockBackend } from './contracts/lock-backend.js';
import { emptyCacheStore } from './backends/memory/cache/empty-cache-store.js';
import { memoryCacheStore } from './backends/memory/cache/memory-cache-store.js';
import { openRedisCacheStore } from './backends/redis/cache/redis-cache-store.js';
import type { ResolvedModuleOptions } from './redis-lock.options.js';

/** Opens the store of a module's cache: where its options say, or else the store of the lock backend, if it has one. */
export async function openCacheStore(
  { enabled, memory, redis }: NonNullable<ResolvedModuleOptions['cache']>,
  prefix: string | undefined,
  locks: LockBackend,
): Promise<CacheStore | undefined> {
  if (!enabled) return emptyCacheStore();
  if (memory) {
    const { BoundedValues } = await import('./backends/memory/cache/bounded-values.js');
    return memoryCacheStore(new BoundedValues(memory));
  }
  if (redis !== undefined) return openRedisCacheStore(redis, prefix);
  return isCacheStoreProvider(locks) ? locks.openCacheStore(prefix) : undefined;
}
