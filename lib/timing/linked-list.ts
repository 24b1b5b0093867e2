/** The place of a value in a list, which it leaves at any time, at no cost. */
export class Place<T> {
  before: Place<T> | undefined;
  after: Place<T> | undefined;

  constructor(
    readonly value: T,
    private list: LinkedList<T> | undefined,
  ) {}

  /** Answers `false` when it has left before. */
  leave(): boolean {
    const { list } = this;
    if (!list) return false;
    this.list = undefined;
    list.unlink(this);
    this.before = this.after = undefined;
    return true;
  }
}

/**
 * Values in the order in which they came. A `Set` or a `Map` does the same, but V8 links each table that it outgrew to
 * the next one: what thousands of short-lived objects go through keeps them all from the young generation's garbage
 * collector.
 */
export class LinkedList<T> {
  private head: Place<T> | undefined;
  private tail: Place<T> | undefined;

  get first(): T | undefined {
    return this.head?.value;
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

  /** @internal for `Place` */
  unlink({ before, after }: Place<T>): void {
    if (before) before.after = after;
    else this.head = after;
    if (after) after.before = before;
    else this.tail = before;
  }
}
