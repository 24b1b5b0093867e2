import { randomUUID } from 'node:crypto';
import { memory } from 'nest-redis-lock/memory';
import type { LockBackend, LockStore, ModuleContext } from 'nest-redis-lock/backend';
import type { CacheStoreProvider } from '../../lib/contracts/cache-store.js';
import type { PrimitiveStoreProvider } from '../../lib/contracts/primitive-stores.js';

/** A backend, and what a module without a prefix has opened there. */
export type OpenBackend = LockBackend & LockStore;

/** Opens a store at the backend; what the module would be told goes to those of the functions that are given. */
export function openBackend(backend: LockBackend, module: Partial<ModuleContext> = {}): OpenBackend {
  const store = backend.open(contextOf(module));
  return new Proxy(backend as OpenBackend, {
    get: (_, name) => {
      const target = name in store ? store : backend;
      const value = Reflect.get(target, name) as unknown;
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** A module of a process of its own, to which nothing need be told. */
export function contextOf(module: Partial<ModuleContext> = {}): ModuleContext {
  const nothing = () => {};
  return {
    process: randomUUID(),
    commandTimeout: 1_000,
    report: nothing,
    lost: nothing,
    connected: nothing,
    message: nothing,
    interrupted: nothing,
    reconnected: nothing,
    ...module,
  };
}

type Members = LockBackend & LockStore & Partial<PrimitiveStoreProvider & CacheStoreProvider>;

/** Members of a backend and of its stores; `undefined`: it has no such member. */
export type Replacements = { readonly [Name in keyof Members]?: Members[Name] | undefined };

/**
 * The backend with some of its members, or of those of the stores that modules open, replaced. The stores tell what
 * happens to `heard` of the module.
 */
export function replacing(
  inner: LockBackend,
  replace: (inner: OpenBackend) => Replacements,
  heard: (module: ModuleContext) => ModuleContext = (module) => module,
): LockBackend {
  const open = (module: ModuleContext): LockStore => {
    const store = inner.open(heard(module));
    return withMembers(store, replace(both(inner, store)));
  };
  return withMembers(inner, { ...replace(openBackend(inner)), open });
}

/** `memory()` under another name, without the members that a backend and its stores may leave out; but with `kept`. */
export function bare(name: string, ...kept: (keyof Members)[]): LockBackend {
  const without = OPTIONAL.filter((each) => !kept.includes(each)).map((each) => [each, undefined]);
  return replacing(memory(), () => ({ name, ...Object.fromEntries(without) }));
}

const OPTIONAL: readonly (keyof Members)[] = [
  'acquireSeveral',
  'downgrade',
  'forceRelease',
  'keep',
  'label',
  'list',
  'openCacheStore',
  'openPrimitiveStores',
];

function both(backend: LockBackend, store: LockStore): OpenBackend {
  return openBackend(Object.assign(Object.create(backend) as LockBackend, { open: () => store }));
}

/** `target`, of which some members are replaced. */
export function withMembers<Target extends object>(target: Target, replaced: object): Target {
  return new Proxy(target, {
    get: (_, name) => {
      if (name in replaced) return Reflect.get(replaced, name) as unknown;
      const value = Reflect.get(target, name) as unknown;
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
    has: (_, name) => name in target || name in replaced,
  });
}
