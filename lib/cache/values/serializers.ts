import type { Type } from '@nestjs/common';
import { packer } from './packer.js';

/** Turns values into bytes and back. */
export interface CacheSerializer {
  /**
   * Stored with every value. A value that a serializer with another name stored counts as absent, so that two versions
   * of an application can run at once: change the name when `deserialize` can no longer read older values.
   * @default a digest of the text of both functions
   */
  readonly name?: string;
  /** Return text where possible: clients send it faster than a buffer. */
  serialize(value: unknown): string | Buffer;
  /** @throws for data that `serialize` did not make: the value then counts as absent */
  deserialize(data: Buffer): unknown;
}

/** The first byte of packed data: neither UTF-8 text nor MessagePack begins with it. */
const PACKED = 0xc1;

/**
 * Keeps `Date`, `Map`, `Set`, `bigint`, `undefined`, `NaN`, `Buffer`, typed arrays, regular expressions, errors and
 * cycles. Stores a value that JSON keeps unchanged as JSON, which is fast to read and readable for other programs, and
 * any other value as MessagePack.
 */
export function typedSerializer(): CacheSerializer {
  const packr = packer();
  const serializer: CacheSerializer = {
    name: 'typed',
    serialize(value) {
      if (isJson(value, 0)) return JSON.stringify(value);
      return Buffer.concat([Buffer.of(PACKED), packr.pack(value)]);
    },
    deserialize(data) {
      return data[0] === PACKED ? packr.unpack(data.subarray(1)) : JSON.parse(data.toString());
    },
  };
  BUILT_IN_SERIALIZERS.add(serializer);
  return serializer;
}

/** The serializers made by `typedSerializer()`: their values share no bytes with the data they were read from. */
export const BUILT_IN_SERIALIZERS = new WeakSet<CacheSerializer>();

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

/** A value that is nested deeper may have a cycle; the packer handles these. */
const DEEPEST = 32;

/** Whether `JSON.parse(JSON.stringify(value))` is the same. */
export function isJson(value: unknown, depth: number): boolean {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return true;
    case 'number':
      return Number.isFinite(value) && !Object.is(value, -0);
    case 'object':
      if (value === null) return true;
      if (depth > DEEPEST) return false;
      return Array.isArray(value) ? isJsonList(value, depth) : isJsonObject(value, depth);
    default:
      return false;
  }
}

function isJsonList(list: readonly unknown[], depth: number): boolean {
  for (const element of list) if (!isJson(element, depth + 1)) return false;
  return true;
}

function isJsonObject(object: object, depth: number): boolean {
  const prototype: unknown = Object.getPrototypeOf(object);
  if ((prototype !== Object.prototype && prototype !== null) || 'toJSON' in object) return false;
  for (const name in object) if (!isJson((object as Record<string, unknown>)[name], depth + 1)) return false;
  return true;
}
