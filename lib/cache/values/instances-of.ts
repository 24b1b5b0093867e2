import type { Type } from '@nestjs/common';

/**
 * For `revive`: makes what was stored an instance of the class again, and so each element of a list, without calling
 * the constructor. What is inside of it stays plain: for that, give a function such as `(stored) =>
 * plainToInstance(Product, stored)`.
 */
export function instancesOf<T extends object>(type: Type<T>): (stored: unknown) => unknown {
  return function revive(stored: unknown): unknown {
    if (Array.isArray(stored)) return stored.map(revive);
    if (typeof stored !== 'object' || stored === null) return stored;
    // Defined and not assigned, which would run setters of the class, and that of "__proto__" would choose another one.
    const { ['__proto__']: _, ...properties } = Object.getOwnPropertyDescriptors(stored);
    return Object.create(type.prototype as object, properties) as object;
  };
}
