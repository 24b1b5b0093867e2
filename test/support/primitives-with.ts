import { memory, type LockBackend } from 'nest-redis-lock';
import type { PrimitiveStoreProvider, PrimitiveStores } from '../../lib/contracts/primitive-stores.js';
import { withMembers } from './open-backend.js';

type Replacements = { readonly [Store in Exclude<keyof PrimitiveStores, 'close'>]?: Partial<PrimitiveStores[Store]> };

/** A backend in memory, with some methods of its primitive stores replaced. */
export function primitivesWith(replace: Replacements): LockBackend {
  return replacingPrimitives(memory(), () => replace);
}

/** The backend, with some methods of the primitive stores that modules open replaced. */
export function replacingPrimitives(
  backend: LockBackend,
  replace: (inner: PrimitiveStores) => Replacements,
): LockBackend {
  const openPrimitiveStores = (prefix: string | undefined): PrimitiveStores => {
    const inner = (backend as LockBackend & PrimitiveStoreProvider).openPrimitiveStores(prefix);
    const replaced = replace(inner);
    return withMethods(inner, (name) => {
      const methods = replaced[name as keyof Replacements];
      return methods && withMethods(inner[name as keyof Replacements], (method) => Reflect.get(methods, method));
    });
  };
  return withMembers(backend, { openPrimitiveStores });
}

/** `target` with other properties where `other` has them. */
function withMethods<Target extends object>(target: Target, other: (name: string) => unknown): Target {
  return new Proxy(target, {
    get: (_, name) => {
      const property = other(name as string) ?? Reflect.get(target, name);
      return typeof property === 'function' ? (property as () => unknown).bind(target) : property;
    },
  });
}
