import { memory, type LockBackend } from 'nest-redis-lock';
import type { AcquireAnswer, AcquireRequest, AcquireSeveralRequest, CacheStore } from 'nest-redis-lock/backend';
import type { CacheStoreProvider } from '../../lib/contracts/cache-store.js';
import type { PrimitiveStoreProvider, PrimitiveStores, SemaphoreStore } from '../../lib/contracts/primitive-stores.js';
import { type OpenBackend, replacing, withMembers } from './open-backend.js';

type Replacing = typeof replacing extends (inner: LockBackend, ...rest: infer Rest) => LockBackend ? Rest : never;

/** A store that lies: `memory()`, of which some calls are replaced. */
export function lying(...lies: Replacing): LockBackend {
  return replacing(memory(), ...lies);
}

/** `memory()`, of whose cache the call of that name, as in `sets.add`, answers something else. */
export function lyingCache(call: string, answer: unknown): LockBackend {
  const [part = '', ofPart] = call.split('.');
  const lie = async () => answer;
  const honest = memory() as LockBackend & CacheStoreProvider;
  return replacing(honest, () => ({
    openCacheStore: (prefix: string | undefined): CacheStore => {
      const store = honest.openCacheStore(prefix);
      if (ofPart === undefined) return withMembers(store, { [part]: lie });
      const whole = Reflect.get(store, part) as object;
      return withMembers(store, { [part]: withMembers(whole, { [ofPart]: lie }) });
    },
  }));
}

/** `memory()`, of whose semaphores some calls are replaced. */
export function lyingSemaphores(replace: (honest: SemaphoreStore) => Partial<SemaphoreStore>): LockBackend {
  const honest = memory() as LockBackend & PrimitiveStoreProvider;
  return replacing(honest, () => ({
    openPrimitiveStores: (prefix: string | undefined): PrimitiveStores => {
      const stores = honest.openPrimitiveStores(prefix);
      const { semaphores } = stores;
      const both = withMembers(semaphores, replace(semaphores));
      return Object.assign(Object.create(stores) as PrimitiveStores, { semaphores: both });
    },
  }));
}

/** The calls by which names are taken, of whose answers `lie` makes others. */
export function answering(honest: OpenBackend, lie: (answer: Promise<AcquireAnswer>) => Promise<AcquireAnswer>) {
  return {
    acquire: (request: AcquireRequest) => lie(Promise.resolve(honest.acquire(request))),
    acquireSeveral: (request: AcquireSeveralRequest) => lie(Promise.resolve(honest.acquireSeveral!(request))),
  };
}
