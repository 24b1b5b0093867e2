import { LRUCache } from 'lru-cache';

interface MemoryBounds {
  /** The most values. */
  readonly max: number;
  /** The most bytes of all values together. */
  readonly maxBytes: number;
}

/** Roughly the bytes that an entry takes in addition to its key and value. */
const OVERHEAD = 200;

/** As `ExpiringMap`, but bounded: drops the least recently used values, and does not keep a value above `maxBytes`. */
export class BoundedValues {
  private readonly values: LRUCache<string, Buffer>;

  constructor({ max, maxBytes }: MemoryBounds) {
    this.values = new LRUCache({
      max,
      maxSize: maxBytes,
      sizeCalculation: (value, key) => value.length + key.length + OVERHEAD,
      ttlResolution: 0,
    });
  }

  get(key: string): Buffer | undefined {
    return this.values.get(key);
  }

  remaining(key: string): number | undefined {
    return this.values.has(key) ? this.values.getRemainingTTL(key) : undefined;
  }

  set(key: string, value: Buffer, ttl: number): void {
    // LRUCache takes a ttl of 0 for no expiry.
    this.values.set(key, value, { ttl: ttl === Infinity ? 0 : Math.max(1, ttl) });
  }

  expire(key: string, ttl: number): boolean {
    const value = this.values.get(key);
    if (value) this.set(key, value, ttl);
    return value !== undefined;
  }

  delete(key: string): void {
    this.values.delete(key);
  }

  /** A copy of the present keys. */
  keys(): string[] {
    return [...this.values.keys()];
  }

  get size(): number {
    return this.values.size;
  }
}
