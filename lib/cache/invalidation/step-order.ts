/**
 * A resource that a step changes or relies on: the value of a key, a tag, a set. Steps that access one resource in the
 * same mode may run at once; without a mode, a step has the resource to itself.
 */
export interface Access {
  readonly resource: string;
  readonly mode?: string;
}

export const keyResource = (key: string): string => `k${key}`;
/** The key of the resource; '' if the resource is not a key. */
export const keyOfResource = (resource: string): string => (resource.startsWith('k') ? resource.slice(1) : '');
export const tagResource = (tag: string): string => `t${tag}`;
export const setResource = (key: string): string => `s${key}`;
export const expiringSetResource = (key: string): string => `e${key}`;

/**
 * What this process has under way for one key: a read that callers may join, then the step that stores its value. One
 * place for both, because a `Map` keeps its outgrown tables: they would keep two objects of each miss.
 */
export interface KeyPlace<Read = unknown> {
  /** Empty once it has ended: the outgrown tables would keep the read. */
  read: Read | undefined;
  /** How many steps are under way that were so when they were entered. */
  steps: number;
  /** Resolves when they have ended; made when somebody asks. */
  ended: Promise<void> | undefined;
  end: (() => void) | undefined;
}

/**
 * Orders the changes that this process makes, because on the way to the store a later change could overtake an earlier
 * one. A step must not call code of the application or wait for another step, or it could wait for itself.
 */
export class StepOrder {
  /** The last group of each resource. */
  private readonly last = new Map<string, StepGroup>();
  /** How many resources have steps under way. */
  busy = 0;

  constructor(private readonly places: Map<string, KeyPlace>) {}

  /**
   * Resolves when all changes of the key that were called before have ended; `undefined` if there are none. A command
   * sent right after that precedes the changes called later; if there is nothing to wait for, send it in the same turn
   * of the event loop.
   */
  afterKey(key: string): Promise<void> | undefined {
    const group = this.last.size > 0 ? this.last.get(keyResource(key))?.close() : undefined;
    const place = this.places.get(key);
    const entered = place && place.steps > 0 ? endOf(place) : undefined;
    return group && entered ? entered.then(() => group) : (group ?? entered);
  }

  /** As `afterKey`, for all of these tags. */
  afterTags(tags: readonly string[]): Promise<unknown> | undefined {
    if (this.last.size === 0) return undefined;
    const ends = tags.flatMap((tag) => this.last.get(tagResource(tag))?.close() ?? []);
    return ends.length > 0 ? Promise.all(ends) : undefined;
  }

  /** As `afterKey`, for all resources that match. */
  afterMatching(matches: (resource: string) => boolean): Promise<unknown> {
    const groups = [...this.last].filter(([resource]) => matches(resource)).map(([, group]) => group.close());
    const entered = [...this.places].filter(([key, { steps }]) => steps > 0 && matches(keyResource(key)));
    return Promise.all([...groups, ...entered.map(([, place]) => endOf(place))]);
  }

  /** Runs the step after the conflicting steps that were called before. */
  async run<T>(accesses: readonly Access[], step: () => Promise<T>): Promise<T> {
    const groups = accesses.map((access) => this.join(access));
    const places = accesses.map(({ resource }) => this.places.get(keyOfResource(resource)));
    const entered = places.map((place) => place && place.steps > 0 && endOf(place));
    try {
      for (const ended of entered) if (ended) await ended;
      for (const { before } of groups) if (before) await before;
      return await step();
    } finally {
      for (const [index, group] of groups.entries()) {
        const { resource } = accesses[index] as Access;
        if (!group.leave() || this.last.get(resource) !== group) continue;
        this.last.delete(resource);
        this.busy -= 1;
      }
    }
  }

  /**
   * Enters a step on the key that is under way: it waits for no other, but those called later wait for it, until
   * `leave`. Takes few objects, because each load enters one.
   */
  enter(key: string): void {
    let place = this.places.get(key);
    if (!place) this.places.set(key, (place = { read: undefined, steps: 0, ended: undefined, end: undefined }));
    if (place.steps === 0) this.busy += 1;
    place.steps += 1;
  }

  /** Ends a step that was entered. */
  leave(key: string): void {
    const place = this.places.get(key);
    if (!place || place.steps === 0) return;
    place.steps -= 1;
    if (place.steps > 0) return;
    if (!place.read) this.places.delete(key);
    this.busy -= 1;
    const { end } = place;
    place.ended = place.end = undefined;
    end?.();
  }

  private join({ resource, mode }: Access): StepGroup {
    const last = this.last.get(resource);
    if (last?.admits(mode)) return last.join();
    const group = new StepGroup(mode, last?.ended).join();
    if (!last) this.busy += 1;
    this.last.set(resource, group);
    return group;
  }
}

function endOf(place: KeyPlace): Promise<void> {
  return (place.ended ??= new Promise((resolve) => (place.end = resolve)));
}

/** Steps on one resource that run at once. */
class StepGroup {
  private open = 0;
  private closed = false;
  private end!: () => void;
  /** Resolves when every step of the group has settled. */
  readonly ended = new Promise<void>((resolve) => (this.end = resolve));

  constructor(
    private readonly mode: string | undefined,
    /** The end of the group before this one; cleared once that has ended. */
    public before: Promise<void> | undefined,
  ) {
    void before?.then(() => (this.before = undefined));
  }

  /** Closes the group: later steps form a new one. Returns its end. */
  close(): Promise<void> {
    this.closed = true;
    return this.ended;
  }

  admits(mode: string | undefined): boolean {
    return !this.closed && mode !== undefined && this.mode === mode;
  }

  join(): this {
    this.open += 1;
    return this;
  }

  /** Returns whether it was the last step of the group. */
  leave(): boolean {
    this.open -= 1;
    if (this.open > 0) return false;
    this.end();
    return true;
  }
}
