import { memory, type LockBackend } from 'nest-redis-lock';
import type { PrimitiveStoreProvider, PrimitiveStores } from '../../lib/contracts/primitive-stores.js';

type Replacements = { readonly [Store in Exclude<keyof PrimitiveStores, 'close'>]?: Partial<PrimitiveStores[Store]> };

/** A backend in memory, with some methods of its primitive stores replaced. */
export function primitivesWith(replace: Replacements): LockBackend {
  const backend = memory() as LockBackend & PrimitiveStoreProvider;
  const inner = backend.openPrimitiveStores(undefined);
  backend.openPrimitiveStores = () =>
    withMethods(inner, (name) => {
      const methods = replace[name as keyof Replacements];
      return methods && withMethods(inner[name as keyof Replacements], (method) => Reflect.get(methods, method));
    });
  return backend;
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
