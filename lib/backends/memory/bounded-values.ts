import { LRUCache } from 'lru-cache';

export interface MemoryBounds {
  /** The greatest number of values. */
  readonly max: number;
  /** The greatest size of all of them together, in bytes. */
  readonly maxBytes: number;
}

/** Roughly what an entry takes beside the bytes of its value and key. */
const OVERHEAD = 200;

/** As `ExpiringMap`, and bounded: drops the value that was used least recently. Does not keep one above `maxBytes`. */
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
    // To LRUCache, a ttl of 0 means that there is none.
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

  /** A copy of the keys as they are now. */
  keys(): string[] {
    return [...this.values.keys()];
  }

  get size(): number {
    return this.values.size;
  }
}
