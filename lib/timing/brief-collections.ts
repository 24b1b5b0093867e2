// Collections for values that stay in them briefly: V8 keeps what was in a `Map` or a `Set` for longer.

/**
 * What can be in a list, which it can leave at any time, at constant cost. It is its own place there: an object for the
 * place would need more memory than all else that a waiting caller has to remember. Who extends it gives its fields
 * their values.
 */
export abstract class Place {
  declare before: this | undefined;
  declare after: this | undefined;
  /** The list that it is in. */
  declare list: LinkedList<Place> | undefined;

  /** Leaves the list; `false` when it left before. */
  leave(): boolean {
    const { list } = this;
    if (!list) return false;
    const { before, after } = this;
    if (before) before.after = after;
    else list.first = after;
    if (after) after.before = before;
    else list.last = before;
    this.list = this.before = this.after = undefined;
    return true;
  }
}

/** The place of something that cannot be its own. */
export class PlaceOf<T> extends Place {
  constructor(readonly value: T) {
    super();
    this.before = this.after = this.list = undefined;
  }
}

/**
 * Places in order of arrival. A `Set` or a `Map` would do the same, but V8 links each table that such a collection has
 * outgrown to the next one. Thousands of short-lived objects then all survive the young generation's garbage
 * collection.
 */
export class LinkedList<P extends Place> {
  first: P | undefined = undefined;
  last: P | undefined = undefined;

  /** The place must be in no list. */
  push(place: P): P {
    const { last } = this;
    place.list = this;
    place.before = last;
    if (last) last.after = place;
    else this.first = place;
    this.last = place;
    return place;
  }

  /** A copy, which does not change with the list. */
  toArray(): P[] {
    const places: P[] = [];
    for (let place = this.first; place; place = place.after) places.push(place);
    return places;
  }
}

/** What a roster has. */
export interface Listed {
  /** Where the roster has it; below 0 while it is in none. */
  index: number;
}

/** A roster with less than a quarter of this number gives its memory back. */
const ROOM = 256;

/** Objects in no order. Each knows where it is, and so leaves at constant cost. */
export class Roster<T extends Listed> {
  private readonly listed: (T | undefined)[] = [];
  size = 0;

  add(one: T): void {
    one.index = this.size;
    this.listed[this.size++] = one;
  }

  /** `false` when it was removed before. */
  remove(one: T): boolean {
    const { index } = one;
    if (index < 0) return false;
    const { listed } = this;
    const last = listed[--this.size] as T;
    // Not by `pop`, which allocates the memory anew for each that comes after the last one has left.
    listed[this.size] = undefined;
    if (last !== one) {
      listed[index] = last;
      last.index = index;
    }
    one.index = -1;
    if (listed.length > ROOM && this.size < listed.length / 4) listed.length = this.size;
    return true;
  }

  /** A copy, which does not change with the roster. */
  toArray(): T[] {
    return this.listed.slice(0, this.size) as T[];
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
