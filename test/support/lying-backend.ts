import { memory, type LockBackend } from 'nest-redis-lock';
import type { AcquireAnswer, AcquireRequest, AcquireSeveralRequest, CacheStore } from 'nest-redis-lock/backend';
import type { CacheStoreProvider } from '../../lib/contracts/cache-store.js';
import type { PrimitiveStoreProvider, PrimitiveStores, SemaphoreStore } from '../../lib/contracts/primitive-stores.js';

type Lies = { readonly [Name in keyof LockBackend]?: LockBackend[Name] | undefined } & {
  readonly openPrimitiveStores?: PrimitiveStoreProvider['openPrimitiveStores'];
  readonly openCacheStore?: CacheStoreProvider['openCacheStore'];
};

/** A store that lies: `memory()`, of which some calls are replaced. */
export function lying(replace: (honest: LockBackend) => Lies): LockBackend {
  const honest = memory();
  return replacing(honest, replace(honest));
}

/** `honest`, of which some members are replaced. */
function replacing<T extends object>(honest: T, replaced: object): T {
  return new Proxy(honest, {
    get: (target, name) => {
      const value = (name in replaced ? Reflect.get(replaced, name) : Reflect.get(target, name)) as unknown;
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** `memory()`, of whose cache the call of that name, as in `sets.add`, answers something else. */
export function lyingCache(call: string, answer: unknown): LockBackend {
  const [part = '', ofPart] = call.split('.');
  const lie = async () => answer;
  return lying((honest) => ({
    openCacheStore: (prefix: string | undefined): CacheStore => {
      const store = (honest as LockBackend & CacheStoreProvider).openCacheStore(prefix);
      if (ofPart === undefined) return replacing(store, { [part]: lie });
      const whole = Reflect.get(store, part) as object;
      return replacing(store, { [part]: replacing(whole, { [ofPart]: lie }) });
    },
  }));
}

/** `memory()`, of whose semaphores some calls are replaced. */
export function lyingSemaphores(replace: (honest: SemaphoreStore) => Partial<SemaphoreStore>): LockBackend {
  return lying((honest) => ({
    openPrimitiveStores: (prefix: string | undefined): PrimitiveStores => {
      const stores = (honest as LockBackend & PrimitiveStoreProvider).openPrimitiveStores(prefix);
      const { semaphores } = stores;
      const both = replacing(semaphores, replace(semaphores));
      return Object.assign(Object.create(stores) as PrimitiveStores, { semaphores: both });
    },
  }));
}

/** The calls by which names are taken, of whose answers `lie` makes others. */
export function answering(honest: LockBackend, lie: (answer: Promise<AcquireAnswer>) => Promise<AcquireAnswer>) {
  return {
    acquire: (request: AcquireRequest) => lie(Promise.resolve(honest.acquire(request))),
    acquireSeveral: (request: AcquireSeveralRequest) => lie(Promise.resolve(honest.acquireSeveral!(request))),
  };
}
