/*
 * The ways into a read: through the first level, if the cache has one, and then through the store, which callers of one
 * key share. What a shared read does, hit or miss, stands in `read.ts`.
 */

import { AsyncResource } from 'node:async_hooks';
import { cacheChannels } from '../../events/cache-channels.js';
import type { InvalidatedTags } from '../invalidation/local-state.js';
import type { Loader } from '../load/cache-loader.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { publishHit, type CacheCounters } from '../store/cache-stats.js';
import type { FirstLevel, Kept } from '../values/first-level.js';
import type { BatchParticipant } from './batch-load.js';
import type { Refresher } from './fill.js';
import { currentReport, type ReadReport } from './read-report.js';
import { Flight, Read, type NextFlight, type ReadContext } from './read.js';
import { hasTags, isDueForRefresh, type StoredValues } from './stored-values.js';

/** Reads through the first level, and through the store if that has no value. */
export class FirstLevelReads {
  constructor(
    private readonly firstLevel: FirstLevel,
    private readonly secondLevel: SingleFlight,
    private readonly values: StoredValues,
    private readonly refresher: Refresher,
    private readonly counters: CacheCounters,
  ) {}

  read(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant?: BatchParticipant,
  ): Promise<unknown> {
    const kept = settings.strong || settings.forceFresh ? undefined : this.firstLevel.get(key);
    if (!kept || !hasTags(kept.entry, settings.tags)) {
      return this.secondLevel.read(key, loader, settings, participant);
    }
    if (settings.revive) return this.readRevived(key, loader, settings, settings.revive, kept, participant);
    this.hit(key, loader, settings, kept, participant);
    return Promise.resolve(kept.value);
  }

  private async readRevived(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    revive: NonNullable<EntrySettings['revive']>,
    kept: Kept,
    participant: BatchParticipant | undefined,
  ): Promise<unknown> {
    const revived = await this.values.revive(key, revive, kept.value);
    if (!revived) return this.secondLevel.read(key, loader, settings, participant);
    this.hit(key, loader, settings, kept, participant);
    return revived.value;
  }

  private hit(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    kept: Kept,
    participant: BatchParticipant | undefined,
  ): void {
    this.counters.firstLevelHits += 1;
    if (cacheChannels.hit.hasSubscribers) publishHit(key, settings.template, 'first');
    currentReport()?.add({ outcome: 'hit', remaining: kept.entry.expiresAt - Date.now() });
    if (isDueForRefresh(kept.entry, settings)) this.refresher.refresh(key, loader, settings, kept, participant);
  }
}

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
      const flight = this.flights.startAlone(key, settings.forceFresh, settings.tags);
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
    if (!settings.strong && this.busConnected) {
      if (current.startedAt === this.invalidatedTags.count) {
        participant?.decided();
        return reported(current, report);
      }
      return this.joinLate(current, loader, settings, participant, report);
    }
    // The value of the current flight may be older than an invalidation that completed before this call.
    participant?.waits();
    const next = current.joinNext(settings.strong) ?? this.startNext(current, loader, settings, participant);
    return report ? next.flight.then((flight) => reported(flight, report)) : next.value;
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
    return current.startNext((strong) => caller.runInAsyncScope(start, undefined, strong));
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
    if (next) return reported(next, report);
    participant?.resumes();
    return reported(this.startShared(key, loader, settings, participant), report);
  }

  private startShared(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
  ): Flight {
    const flight = this.flights.start(key, settings.forceFresh, settings.tags);
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

/** The value of the flight; adds what the flight did to the report of this caller. */
function reported(flight: Flight, report: ReadReport | undefined): Promise<unknown> {
  const { promise } = flight;
  if (!report) return promise;
  return promise.then((value) => {
    const { outcome, freshUntil } = flight;
    report.add(freshUntil === undefined ? { outcome } : { outcome, remaining: freshUntil - Date.now() });
    return value;
  });
}

/** The flights of this process. For each key, callers can join at most one. */
export class Flights {
  // Not a Map: V8 links each table that a Map has outgrown to the next one, and so keeps ended flights from the garbage
  // collection of the young generation.
  private readonly byKey = Object.create(null) as Record<string, Flight>;
  private readonly forced = Object.create(null) as Record<string, Flight>;

  constructor(
    readonly firstLevel: FirstLevel | undefined,
    readonly invalidatedTags: InvalidatedTags,
  ) {}

  get(key: string, forced: boolean): Flight | undefined {
    return this.of(forced)[key];
  }

  start(key: string, forced: boolean, tags: readonly string[]): Flight {
    const flight = new Flight(this, key, forced, tags);
    this.of(forced)[key] = flight;
    return flight;
  }

  /** Starts a flight that no caller joins. */
  startAlone(key: string, forced: boolean, tags: readonly string[]): Flight {
    return new Flight(this, key, forced, tags);
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

  private of(forced: boolean): Record<string, Flight> {
    return forced ? this.forced : this.byKey;
  }
}
