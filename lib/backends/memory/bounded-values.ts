import { LRUCache } from 'lru-cache';

export interface MemoryBounds {
  /** The greatest number of values. */
  readonly max: number;
  /** The greatest size of all of them together. */
  readonly maxBytes: number;
}

/** What a value costs beside its bytes, roughly. */
const OVERHEAD = 200;

/**
 * As `ExpiringMap`, and bounded: what was used least recently leaves. One value that is greater than all may be is not
 * kept.
 */
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
    // No ttl is 0 to it.
    this.values.set(key, value, { ttl: ttl === Infinity ? 0 : Math.max(1, ttl) });
  }

  expire(key: string, ttl: number): boolean {
    const value = this.values.get(key);
    if (value) this.set(key, value, ttl);
    return value !== undefined;
  }

  delete(key: string): boolean {
    const found = this.values.has(key);
    this.values.delete(key);
    return found;
  }

  /** As they are now. */
  keys(): string[] {
    return [...this.values.keys()];
  }

  get size(): number {
    return this.values.size;
  }
}
