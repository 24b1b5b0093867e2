/**
 * What a step changes, or relies on: a key, a tag, a set. Steps that share a thing in the same way may be under way at
 * once.
 */
export interface Claim {
  readonly thing: string;
  readonly shared?: string;
}

export const keyThing = (key: string): string => `k${key}`;
/** '' for what is no key. */
export const keyOfThing = (thing: string): string => (thing.startsWith('k') ? thing.slice(1) : '');
export const tagThing = (tag: string): string => `t${tag}`;

/** Steps on one thing that are under way at once. */
class Turn {
  private open = 0;
  private closed = false;
  private end!: () => void;
  /** When all of them have ended, however they did. */
  readonly ended = new Promise<void>((resolve) => (this.end = resolve));

  constructor(
    private readonly shared: string | undefined,
    /** The end of those before; gone once that is there. */
    public before: Promise<void> | undefined,
  ) {
    void before?.then(() => (this.before = undefined));
  }

  /** For who comes after all of them, and before whoever comes from now on. */
  close(): Promise<void> {
    this.closed = true;
    return this.ended;
  }

  isSharedBy(shared: string | undefined): boolean {
    return !this.closed && shared !== undefined && this.shared === shared;
  }

  join(): this {
    this.open += 1;
    return this;
  }

  /** Answers whether it was the last one. */
  leave(): boolean {
    this.open -= 1;
    if (this.open > 0) return false;
    this.end();
    return true;
  }
}

/**
 * The changes that this process has under way, so that what is called later takes effect later: on the way to the
 * store, changes may overtake each other. Nothing that a user gave is called within a turn, and no step awaits another
 * turn, or it could wait for itself.
 */
export class Turns {
  /** The last ones of each thing: who comes now comes after them. */
  private readonly last = new Map<string, Turn>();

  /**
   * When the changes of the key have ended that were called by now; `undefined` where there are none. What is sent as
   * soon as that is there comes before the changes that were called later; where there is nothing to wait for, it must
   * be sent in the same turn of the event loop.
   */
  afterKey(key: string): Promise<void> | undefined {
    return this.last.size > 0 ? this.last.get(keyThing(key))?.close() : undefined;
  }

  /** As `afterKey`, for all of these tags. */
  afterTags(tags: readonly string[]): Promise<unknown> | undefined {
    if (this.last.size === 0) return undefined;
    const ends = tags.flatMap((tag) => this.last.get(tagThing(tag))?.close() ?? []);
    return ends.length > 0 ? Promise.all(ends) : undefined;
  }

  /** As `afterKey`, for all things that match. */
  afterAll(matches: (thing: string) => boolean): Promise<unknown> {
    return Promise.all([...this.last].filter(([thing]) => matches(thing)).map(([, turn]) => turn.close()));
  }

  /** Takes the step after those on the same things that were called before. */
  async take<T>(claims: readonly Claim[], step: () => Promise<T>): Promise<T> {
    const turns = claims.map((claim) => this.join(claim));
    try {
      for (const { before } of turns) if (before) await before;
      return await step();
    } finally {
      for (const [index, turn] of turns.entries()) {
        const { thing } = claims[index] as Claim;
        if (turn.leave() && this.last.get(thing) === turn) this.last.delete(thing);
      }
    }
  }

  private join({ thing, shared }: Claim): Turn {
    const last = this.last.get(thing);
    if (last?.isSharedBy(shared)) return last.join();
    const turn = new Turn(shared, last?.ended).join();
    this.last.set(thing, turn);
    return turn;
  }
}
