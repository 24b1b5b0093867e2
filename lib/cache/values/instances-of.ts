import type { Type } from '@nestjs/common';

/**
 * For `revive`: turns the stored object, or each element of a stored list, into an instance of the class without
 * calling the constructor. Nested objects stay plain; to revive them, give a function such as `(stored) =>
 * plainToInstance(Product, stored)`.
 */
export function instancesOf<T extends object>(type: Type<T>): (stored: unknown) => unknown {
  return function revive(stored: unknown): unknown {
    if (Array.isArray(stored)) return stored.map(revive);
    if (typeof stored !== 'object' || stored === null) return stored;
    // Defines the properties, because an assignment would run setters of the class, and that of "__proto__" changes the
    // class.
    const { ['__proto__']: _, ...properties } = Object.getOwnPropertyDescriptors(stored);
    return Object.create(type.prototype as object, properties) as object;
  };
}
