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
 * Orders the changes that this process makes, because on the way to the store a later change could overtake an earlier
 * one. A step must not call code of the application or wait for another step, or it could wait for itself.
 */
export class StepOrder {
  /** The last group of each resource. */
  private readonly last = new Map<string, StepGroup>();
  /** The steps that were under way when they were entered, by key. */
  private readonly entered = new Map<string, EnteredSteps>();
  /** How many resources have steps under way. */
  busy = 0;

  /**
   * Resolves when all changes of the key that were called before have ended; `undefined` if there are none. A command
   * sent right after that precedes the changes called later; if there is nothing to wait for, send it in the same turn
   * of the event loop.
   */
  afterKey(key: string): Promise<void> | undefined {
    const group = this.last.get(keyResource(key))?.close();
    const entered = this.entered.get(key)?.ended;
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
    const entered = [...this.entered].filter(([key]) => matches(keyResource(key)));
    return Promise.all([...groups, ...entered.map(([, { ended }]) => ended)]);
  }

  /** Runs the step after the conflicting steps that were called before. */
  async run<T>(accesses: readonly Access[], step: () => Promise<T>): Promise<T> {
    const groups = accesses.map((access) => this.join(access));
    const entered = accesses.map(({ resource }) => this.entered.get(keyOfResource(resource))?.ended);
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
    const steps = this.entered.get(key);
    if (steps) {
      steps.open += 1;
      return;
    }
    this.entered.set(key, new EnteredSteps());
    this.busy += 1;
  }

  /** Ends a step that was entered. */
  leave(key: string): void {
    const steps = this.entered.get(key);
    if (!steps) return;
    steps.open -= 1;
    if (steps.open > 0) return;
    this.entered.delete(key);
    this.busy -= 1;
    steps.end?.();
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

/** Steps on one key that wait for no other. */
class EnteredSteps {
  open = 1;
  end: (() => void) | undefined;
  private promise: Promise<void> | undefined;

  /** Resolves when they have ended. */
  get ended(): Promise<void> {
    return (this.promise ??= new Promise((resolve) => (this.end = resolve)));
  }
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
