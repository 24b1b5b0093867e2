/*
 * Who shares a read of a key: `SingleFlight` decides, for each call, whether it joins the flight that is under way, the
 * one after it, or begins one. What a flight does until it lands stands in `read.ts`.
 */

import { AsyncResource } from 'node:async_hooks';
import type { InvalidatedTags } from '../invalidation/local-state.js';
import type { Loader } from '../load/cache-loader.js';
import type { LoadResult } from '../load/load-commits.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { Entry } from '../values/envelope.js';
import { mayEnd, mustNotEnd } from '../../timing/awake-process.js';
import type { FirstLevel } from '../values/first-level.js';
import type { BatchParticipant } from './batch-load.js';
import { currentReport, reported, type ReadOutcome, type ReadReport } from './read-report.js';
import { Read, type ReadContext } from './read.js';
import type { FoundValue } from './stored-values.js';

/** Reads through the store. Callers of this process that ask for one key at the same time share one read. */
export class SingleFlight {
  /** Whether messages of invalidations arrive. Without them, a caller joins only reads that start after its call. */
  busConnected = false;

  constructor(
    private readonly flights: Flights,
    private readonly invalidatedTags: InvalidatedTags,
    private readonly context: ReadContext,
  ) {}

  /** Returns the value of the flight to join, of the one that follows it, or of a new one. */
  read(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant?: BatchParticipant,
  ): Promise<unknown> {
    const report = currentReport();
    const current = this.joinable(key, settings);
    if (!current) return reported(this.startShared(key, loader, settings, participant), report);
    const { scopes, counters } = this.context;
    if (scopes.wouldWaitForItself(key)) {
      const flight = this.flights.startAlone(key, settings);
      return reported(this.start(flight, loader, settings, participant), report);
    }
    counters.sharedReads += 1;
    const answer = this.join(current, loader, settings, participant, report);
    scopes.wait(key, answer);
    return answer;
  }

  private join(
    current: Flight,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
    report: ReadReport | undefined,
  ): Promise<unknown> {
    const shared = (flight: Flight) => this.shared(flight, loader, settings, participant, report);
    if (!settings.strong && this.busConnected) {
      if (current.startedAt === this.invalidatedTags.count) {
        if (current.signal) participant?.waits();
        else participant?.decided();
        return shared(current);
      }
      return this.joinLate(current, loader, settings, participant, report);
    }
    // The value of the current flight may be older than an invalidation that completed before this call.
    participant?.waits();
    const joined = current.joinNext(settings.strong);
    const next = joined ?? this.startNext(current, loader, settings, participant);
    if (joined?.abortable) return next.flight.then(shared);
    return report ? next.flight.then((flight) => reported(flight, report)) : next.value;
  }

  /**
   * The value of a flight of another caller. If it fails after the signal of that caller was aborted, the error is that
   * caller's own, and this one reads again.
   */
  private shared(
    flight: Flight,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
    report: ReadReport | undefined,
  ): Promise<unknown> {
    const answer = reported(flight, report);
    const { signal } = flight;
    if (!signal) return answer;
    return answer.catch((error: unknown) => {
      if (!signal.aborted || settings.signal === signal || settings.signal?.aborted) throw error;
      participant?.resumes();
      return this.read(flight.key, loader, settings, participant);
    });
  }

  /** The flight after the current one, with the loader and in the async context of this caller. */
  private startNext(
    current: Flight,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
  ): NextFlight {
    const caller = new AsyncResource('CacheRead');
    const start = (strong: boolean) => {
      participant?.resumes();
      return this.startShared(current.key, loader, { ...settings, strong }, participant);
    };
    return current.startNext(
      (strong) => caller.runInAsyncScope(start, undefined, strong),
      settings.signal !== undefined,
    );
  }

  /** The flight to join, unless a tag of the options was invalidated since it started. */
  private joinable(key: string, { forceFresh, tags }: EntrySettings): Flight | undefined {
    const { invalidatedTags } = this;
    const current = this.flights.get(key, forceFresh);
    if (!current || current.startedAt === invalidatedTags.count) return current;
    const outdated = [current.tags, tags].some((named) => invalidatedTags.anySince(named, current.startedAt));
    if (!outdated) return current;
    current.detach();
    return undefined;
  }

  /**
   * Joins a flight although tags were invalidated since it started, because the tags of its value are known only when
   * it ends. The value counts unless it has one of those tags. Otherwise, and after an error (which does not tell the
   * tags), the next flight counts, which starts after this call.
   */
  private async joinLate(
    current: Flight,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
    report: ReadReport | undefined,
  ): Promise<unknown> {
    participant?.waits();
    const outdated = await current.promise.then(
      () => this.invalidatedTags.anySince(current.tags, current.startedAt),
      () => true,
    );
    if (!outdated) return reported(current, report);
    const { key } = current;
    const next = this.flights.get(key, settings.forceFresh);
    if (next) return this.shared(next, loader, settings, participant, report);
    participant?.resumes();
    return reported(this.startShared(key, loader, settings, participant), report);
  }

  private startShared(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
  ): Flight {
    const flight = this.flights.start(key, settings);
    return this.start(flight, loader, settings, participant);
  }

  private start(
    flight: Flight,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
  ): Flight {
    new Read(this.context, flight, loader, settings, participant).start();
    return flight;
  }
}

type FlightSettings = Pick<EntrySettings, 'forceFresh' | 'tags' | 'signal'>;

/** The flights of this process. For each key, callers can join at most one. */
export class Flights {
  // Not a Map: V8 links its outgrown tables, which keeps ended flights from the collection of the young generation.
  private readonly byKey = Object.create(null) as Record<string, Flight>;
  private readonly forced = Object.create(null) as Record<string, Flight>;
  /** Those that keep the process alive. */
  readonly awake = new Set<Flight>();
  closed = false;

  constructor(
    readonly firstLevel: FirstLevel | undefined,
    readonly invalidatedTags: InvalidatedTags,
  ) {}

  get(key: string, forced: boolean): Flight | undefined {
    return this.of(forced)[key];
  }

  start(key: string, settings: FlightSettings): Flight {
    const flight = this.startAlone(key, settings);
    this.of(flight.forced)[key] = flight;
    return flight;
  }

  /** Starts a flight that no caller joins. */
  startAlone(key: string, { forceFresh, tags, signal }: FlightSettings): Flight {
    return new Flight(this, key, forceFresh, tags, signal);
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

  /** Callers still join the flight, because its value is as new as when it started. */
  outdate(key: string, forced = true): void {
    for (const flight of [this.byKey[key], forced && this.forced[key]]) if (flight) flight.outdated = true;
  }

  detachMatching(matches: (key: string) => boolean): void {
    for (const byKey of [this.byKey, this.forced]) {
      for (const flight of Object.values(byKey)) if (matches(flight.key)) flight.detach();
    }
  }

  /** Called when the application has ended: a loader that never settles does not keep the process alive. */
  close(): void {
    this.closed = true;
    for (const flight of this.awake) flight.letEnd();
  }

  private of(forced: boolean): Record<string, Flight> {
    return forced ? this.forced : this.byKey;
  }
}

/** One read of a key that callers of this process share: decides who may join it, and how it ends. */
export class Flight {
  readonly promise: Promise<unknown>;
  /** Whether the value may be older than an invalidation or than the stored value; the first level does not take it. */
  outdated = false;
  /** Whether it has ended with a stale value while its load still runs. */
  endedEarly = false;
  /** Set when the flight ends. */
  outcome: ReadOutcome = 'miss';
  /** When the `ttl` of the value ends, in ms of the wall clock; absent if the value is not stored. */
  freshUntil: number | undefined;
  /** Whether it has ended with a value that is still being stored. */
  isStoring = false;
  /** The count of `InvalidatedTags` at the start. */
  readonly startedAt: number;
  private readonly generation: number;
  private onEnd: (() => void)[] | undefined;
  private onStored: (() => void)[] | undefined;
  private resolve!: (value: unknown) => void;
  private reject!: (error: unknown) => void;
  private next: NextFlight | undefined;
  private nextIsStrong = false;

  constructor(
    private readonly flights: Flights,
    readonly key: string,
    /** Whether it loads even if a value is stored; only callers with `forceFresh` join it. */
    readonly forced: boolean,
    /** The tags of the value: until the flight ends, those that its options name. */
    public tags: readonly string[],
    /** The signal of the caller who began it. */
    readonly signal: AbortSignal | undefined,
  ) {
    this.startedAt = flights.invalidatedTags.count;
    this.generation = flights.firstLevel?.generation ?? 0;
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  /** Keeps the process alive until it ends: the loader, or the wait for another one, may do nothing for it. */
  keepAwake(): void {
    const { awake, closed } = this.flights;
    if (closed || awake.has(this)) return;
    awake.add(this);
    mustNotEnd();
  }

  /** Ends with the value. */
  land(value: unknown): void {
    this.detach(false);
    if (!this.isStoring) this.letEnd();
    this.resolve(value);
  }

  /** Ends with a fresh value of the store. */
  landFresh(found: FoundValue): void {
    const { entry } = found;
    this.outcome = 'hit';
    this.freshUntil = entry?.expiresAt;
    // A copy, because the payload is a slice of the client's reply.
    if (entry && this.mayKeep(entry)) this.keep({ ...entry, payload: Buffer.from(entry.payload) });
    this.landFound(found);
  }

  /** Ends with a stale value of the store. */
  landStale(found: FoundValue): void {
    this.outcome = 'stale';
    this.landFound(found);
  }

  /** Ends with a loaded value. `isStoring`: the store has not answered yet, and `stored` follows. */
  landLoaded({ value, entry, freshUntil }: LoadResult, isStoring: boolean): void {
    this.freshUntil = freshUntil;
    this.isStoring = isStoring;
    // The value that an ordinary read has found meanwhile is older.
    if (this.forced) this.flights.outdate(this.key, false);
    if (entry && this.mayKeep(entry)) this.keep(entry);
    this.land(value);
  }

  /** The store has answered, or failed, after the flight had ended. `freshUntil` is absent if it has not stored. */
  stored({ freshUntil }: LoadResult): void {
    this.freshUntil = freshUntil;
    this.isStoring = false;
    if (freshUntil === undefined) this.flights.firstLevel?.delete(this.key);
    this.letEnd();
    for (const listener of this.onStored ?? []) listener();
  }

  /** Resolves when the value has been stored, or is not going to be. */
  async untilStored(): Promise<void> {
    if (this.isStoring) await new Promise<void>((resolve) => (this.onStored ??= []).push(resolve));
  }

  fail(error: unknown): void {
    this.detach(false);
    this.letEnd();
    this.reject(error);
  }

  /** Fails with an error of these steps, on which nothing else waits. */
  follow(steps: Promise<void>): void {
    steps.catch((error: unknown) => this.fail(error));
  }

  /** The flight after this one, if a caller has asked for it. It is strong if one of its callers wants that. */
  joinNext(strong: boolean): NextFlight | undefined {
    this.nextIsStrong ||= strong;
    return this.next;
  }

  /** The flight that `start` begins once this one ends or is detached; `start` gets whether it must be strong. */
  startNext(start: (strong: boolean) => Flight, abortable: boolean): NextFlight {
    const flight = new Promise<Flight>((resolve) => {
      (this.onEnd ??= []).push(() => resolve(start(this.nextIsStrong)));
    });
    return (this.next = new NextFlight(flight, abortable));
  }

  /** Lets no further caller join. */
  detach(outdated = true): void {
    this.outdated ||= outdated;
    this.flights.leave(this);
    const { onEnd } = this;
    this.onEnd = undefined;
    if (onEnd) for (const listener of onEnd) listener();
  }

  letEnd(): void {
    if (this.flights.awake.delete(this)) mayEnd();
  }

  private landFound({ entry, value, revived }: FoundValue): void {
    if (entry?.tags) this.tags = Object.keys(entry.tags);
    this.land(revived ? revived.value : value);
  }

  /** Whether the value may enter the first level: no invalidation of it arrived, or was missed, since the start. */
  private mayKeep({ tags }: Entry): boolean {
    const { firstLevel, invalidatedTags } = this.flights;
    if (!firstLevel || this.outdated || this.endedEarly || firstLevel.generation !== this.generation) return false;
    return !tags || !invalidatedTags.anySince(Object.keys(tags), this.startedAt);
  }

  private keep(entry: Entry): void {
    this.flights.firstLevel?.keep(this.key, entry);
  }
}

/** A flight that starts when the one before it ends. */
class NextFlight {
  private shared: Promise<unknown> | undefined;

  constructor(
    readonly flight: Promise<Flight>,
    /** Whether the caller who begins it has a signal. */
    readonly abortable: boolean,
  ) {}

  /** Its value: one promise for all callers. */
  get value(): Promise<unknown> {
    return (this.shared ??= this.flight.then(({ promise }) => promise));
  }
}
