import type { ReadOutcome } from './read-report.js';

/** One read of a key that is under way in this process, and that others may join. */
export class Flight {
  readonly promise: Promise<unknown>;
  /** What this read finds may be older than the last invalidation, or than what is stored. */
  outdated = false;
  /** What it did, once it has landed. */
  outcome: ReadOutcome = 'miss';
  /** Until when the value is fresh, in ms of the wall clock, where it is stored. */
  freshUntil: number | undefined;
  private onEnd: (() => void)[] | undefined;
  private resolve!: (value: unknown) => void;
  private reject!: (error: unknown) => void;
  private following: Promise<Flight> | undefined;
  private followedStrongly = false;

  constructor(
    private readonly flights: Flights,
    readonly key: string,
    /** It loads anew whatever is stored: only those who ask for that join it. */
    readonly forced: boolean,
    /** What `InvalidatedTags` had counted when it began. */
    readonly begun: number,
    /** Of what it answers: until it lands, those that its options name. */
    public tags: readonly string[],
  ) {
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  land(value: unknown): void {
    this.detach(false);
    this.resolve(value);
  }

  fail(error: unknown): void {
    this.detach(false);
    this.reject(error);
  }

  /**
   * What is begun as soon as this one has ended, or is detached; whoever asked for it by then shares it. `begin` is
   * told whether it must be strong, for any of them.
   */
  next(begin: (strong: boolean) => Flight, strong: boolean): Promise<Flight> {
    this.followedStrongly ||= strong;
    this.following ??= new Promise((resolve) => {
      (this.onEnd ??= []).push(() => resolve(begin(this.followedStrongly)));
    });
    return this.following;
  }

  /** Nobody joins any more. */
  detach(outdated = true): void {
    this.outdated ||= outdated;
    this.flights.leave(this);
    const { onEnd } = this;
    this.onEnd = undefined;
    if (onEnd) for (const listener of onEnd) listener();
  }
}

/** The reads that are under way, so that callers of one process share them; a key has at most one to join. */
export class Flights {
  // Not a Map: V8 links each table that one outgrew to the next, and so keeps the flights of before from the young
  // generation's garbage collector.
  private readonly byKey = Object.create(null) as Record<string, Flight>;
  private readonly forced = Object.create(null) as Record<string, Flight>;

  get(key: string, forced = false): Flight | undefined {
    return this.of(forced)[key];
  }

  start(key: string, forced: boolean, begun: number, tags: readonly string[]): Flight {
    const flight = new Flight(this, key, forced, begun, tags);
    this.of(forced)[key] = flight;
    return flight;
  }

  /** One that nobody joins. */
  alone(key: string, begun: number, tags: readonly string[]): Flight {
    return new Flight(this, key, false, begun, tags);
  }

  /** @internal for `Flight` */
  leave(flight: Flight): void {
    const byKey = this.of(flight.forced);
    if (byKey[flight.key] === flight) delete byKey[flight.key];
  }

  detach(key: string): void {
    this.byKey[key]?.detach();
    this.forced[key]?.detach();
  }

  /** Others still join: what it answers is as true as when it began. */
  outdate(key: string, forced = true): void {
    for (const flight of [this.byKey[key], forced && this.forced[key]]) if (flight) flight.outdated = true;
  }

  detachMatching(matches: (key: string) => boolean): void {
    for (const byKey of [this.byKey, this.forced]) {
      for (const flight of Object.values(byKey)) if (matches(flight.key)) flight.detach();
    }
  }

  private of(forced: boolean): Record<string, Flight> {
    return forced ? this.forced : this.byKey;
  }
}
