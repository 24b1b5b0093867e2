import { memory, type LockBackend } from 'nest-redis-lock';
import type { AcquireAnswer, AcquireRequest, AcquireSeveralRequest } from 'nest-redis-lock/backend';
import type { PrimitiveStoreProvider, PrimitiveStores, SemaphoreStore } from '../../lib/contracts/primitive-stores.js';

type Lies = { readonly [Name in keyof LockBackend]?: LockBackend[Name] | undefined } & {
  readonly openPrimitiveStores?: PrimitiveStoreProvider['openPrimitiveStores'];
};

/** A store that lies: `memory()`, of which some calls are replaced. */
export function lying(replace: (honest: LockBackend) => Lies): LockBackend {
  const honest = memory();
  const replaced = replace(honest) as Record<string | symbol, unknown>;
  return new Proxy(honest, {
    get: (target, name) => {
      if (name in replaced) return replaced[name];
      const value = Reflect.get(target, name) as unknown;
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** `memory()`, of whose semaphores some calls are replaced. */
export function lyingSemaphores(replace: (honest: SemaphoreStore) => Partial<SemaphoreStore>): LockBackend {
  return lying((honest) => ({
    openPrimitiveStores: (prefix: string | undefined): PrimitiveStores => {
      const stores = (honest as LockBackend & PrimitiveStoreProvider).openPrimitiveStores(prefix);
      const { semaphores } = stores;
      const lies = replace(semaphores) as Record<string | symbol, unknown>;
      const both = new Proxy(semaphores, {
        get: (target, name) => {
          const value = name in lies ? lies[name] : (Reflect.get(target, name) as unknown);
          return typeof value === 'function' ? (value.bind(target) as unknown) : value;
        },
      });
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
