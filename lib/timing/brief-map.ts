interface Slot<V> {
  value: V | undefined;
}

/**
 * A map for values that stay in it briefly. A `Map` would keep many of them until the next collection of the old
 * generation: V8 links each table that a `Map` has outgrown to the next one, and such a table still refers to what it
 * had. Here it refers to slots, which are emptied when their values are deleted.
 */
export class BriefMap<K, V> {
  private readonly slots = new Map<K, Slot<V>>();

  get size(): number {
    return this.slots.size;
  }

  get(key: K): V | undefined {
    return this.slots.get(key)?.value;
  }

  /** The key must not be in the map. */
  add(key: K, value: V): void {
    this.slots.set(key, { value });
  }

  delete(key: K): void {
    const slot = this.slots.get(key);
    if (!slot) return;
    slot.value = undefined;
    this.slots.delete(key);
  }

  *values(): Generator<V> {
    for (const { value } of this.slots.values()) yield value as V;
  }
}
