import { types } from 'node:util';

/**
 * Whether there are bytes in it that one caller could change for another: itself, or in lists, maps, sets and plain
 * objects.
 */
export function holdsBytes(value: unknown, seen = new Set<object>()): boolean {
  if (typeof value !== 'object' || value === null || seen.has(value)) return false;
  if (isBytes(value)) return true;
  seen.add(value);
  const within = (inner: unknown) => holdsBytes(inner, seen);
  if (Array.isArray(value)) return value.some(within);
  if (value instanceof Map) return [...value].some(([key, inner]) => within(key) || within(inner));
  if (value instanceof Set) return [...value].some(within);
  return isPlain(value) && Object.values(value).some(within);
}

/** The same with bytes of its own, and so with lists, maps, sets and plain objects of its own. */
export function withOwnBytes(value: unknown, copies = new Map<object, unknown>()): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (copies.has(value)) return copies.get(value);
  const remembered = <T>(copy: T): T => {
    copies.set(value, copy);
    return copy;
  };
  const own = (inner: unknown) => withOwnBytes(inner, copies);
  if (isBytes(value)) return remembered(copyOfBytes(value));
  if (Array.isArray(value)) {
    const list = remembered<unknown[]>([]);
    for (const inner of value) list.push(own(inner));
    return list;
  }
  if (value instanceof Map) {
    const map = remembered(new Map<unknown, unknown>());
    for (const [key, inner] of value) map.set(own(key), own(inner));
    return map;
  }
  if (value instanceof Set) {
    const set = remembered(new Set<unknown>());
    for (const inner of value) set.add(own(inner));
    return set;
  }
  if (!isPlain(value)) return value;
  const object = remembered(Object.create(Object.getPrototypeOf(value) as object | null) as object);
  for (const [name, inner] of Object.entries(value)) {
    // "__proto__" may be a name like any other.
    Object.defineProperty(object, name, { value: own(inner), writable: true, enumerable: true, configurable: true });
  }
  return object;
}

function isBytes(value: object): value is ArrayBuffer | ArrayBufferView {
  return ArrayBuffer.isView(value) || types.isArrayBuffer(value);
}

function copyOfBytes(value: ArrayBuffer | ArrayBufferView): unknown {
  if (Buffer.isBuffer(value)) return Buffer.from(value);
  if (value instanceof DataView) {
    return new DataView(value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength));
  }
  return (value as ArrayBuffer | Uint8Array).slice(0);
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
