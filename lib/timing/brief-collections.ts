// Collections for values that stay in them briefly: V8 keeps what was in a `Map` or a `Set` for longer.

/** The place of a value in a list. The value can leave at any time, at constant cost. */
export class Place<T> {
  before: Place<T> | undefined;
  after: Place<T> | undefined;

  constructor(
    readonly value: T,
    private list: LinkedList<T> | undefined,
  ) {}

  /** Removes the value; `false` when it was removed before. */
  leave(): boolean {
    const { list } = this;
    if (!list) return false;
    const { before, after } = this;
    if (before) before.after = after;
    else list.head = after;
    if (after) after.before = before;
    else list.tail = before;
    this.list = this.before = this.after = undefined;
    return true;
  }
}

/**
 * Values in order of arrival. A `Set` or a `Map` would do the same, but V8 links each table that such a collection has
 * outgrown to the next one. Thousands of short-lived objects then all survive the young generation's garbage
 * collection.
 */
export class LinkedList<T> {
  /** @internal for `Place` */
  head: Place<T> | undefined;
  /** @internal for `Place` */
  tail: Place<T> | undefined;

  get first(): T | undefined {
    return this.head?.value;
  }

  get last(): T | undefined {
    return this.tail?.value;
  }

  get firstPlace(): Place<T> | undefined {
    return this.head;
  }

  /** Whether there are two or more. */
  get several(): boolean {
    return this.head !== this.tail;
  }

  push(value: T): Place<T> {
    const place = new Place(value, this);
    place.before = this.tail;
    if (this.tail) this.tail.after = place;
    else this.head = place;
    this.tail = place;
    return place;
  }

  /** A copy, which does not change with the list. */
  toArray(): T[] {
    const values: T[] = [];
    for (let place = this.head; place; place = place.after) values.push(place.value);
    return values;
  }
}

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
