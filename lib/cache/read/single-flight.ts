/*
 * Who shares a read of a key: `SingleFlight` decides, for each call, whether it joins the read that is under way, the
 * one after it, or begins one. What a read does until it ends stands in `read.ts`.
 */

import { AsyncResource } from 'node:async_hooks';
import { cacheChannels } from '../../events/cache-channels.js';
import type { KeyPlace } from '../invalidation/step-order.js';
import type { Loader } from '../load/cache-loader.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { publishHit } from '../store/cache-stats.js';
import { LinkedList, type PlaceOf } from '../../timing/brief-collections.js';
import type { FirstLevel, Kept } from '../values/first-level.js';
import type { BatchParticipant } from './batch-load.js';
import { currentReport, readReports, reported, type ReadReport } from './read-report.js';
import { Read, type ReadContext } from './read.js';
import { hasTags, isDueForRefresh } from './stored-values.js';

/** Reads through the store. Callers of this process that ask for one key at the same time share one read. */
export class SingleFlight {
  /** Whether messages of invalidations arrive. Without them, a caller joins only reads that start after its call. */
  busConnected = false;

  constructor(private readonly context: ReadContext) {}

  /** Returns the value of the read to join, of the one that follows it, or of a new one. */
  read(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant?: BatchParticipant,
  ): Promise<unknown> {
    const { flights, scopes, counters } = this.context;
    const report = readReports.storage?.getStore();
    const current = (settings.forceFresh ? flights.forced : flights.ordinary).get(key)?.read;
    if (!current || this.isOutdated(current, settings)) {
      const read = new Read(this.context, key, loader, settings, participant);
      read.start(true);
      return report ? reported(read, report) : read.promise;
    }
    if (scopes.wouldWaitForItself(key)) {
      const read = new Read(this.context, key, loader, settings, participant);
      read.start(false);
      return reported(read, report);
    }
    counters.sharedReads += 1;
    const answer = this.join(current, loader, settings, participant, report);
    scopes.wait(key, answer);
    return answer;
  }

  private join(
    current: Read,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
    report: ReadReport | undefined,
  ): Promise<unknown> {
    const shared = (read: Read) => this.shared(read, loader, settings, participant, report);
    if (!settings.strong && this.busConnected) {
      if (current.startedAt === this.context.invalidatedTags.count) {
        if (current.settings.signal) participant?.waits();
        else participant?.decided();
        return shared(current);
      }
      return this.joinLate(current, loader, settings, participant, report);
    }
    // The value of the current read may be older than an invalidation that completed before this call.
    participant?.waits();
    const joined = current.next;
    const next = joined ?? (current.next = this.nextRead(current.key, loader, settings, participant));
    next.isStrong ||= settings.strong;
    if (joined?.abortable) return next.read.then(shared);
    return report ? next.read.then((read) => reported(read, report)) : next.value;
  }

  /**
   * The value of a read of another caller. If it fails after the signal of that caller was aborted, the error is that
   * caller's own, and this one reads again.
   */
  private shared(
    read: Read,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
    report: ReadReport | undefined,
  ): Promise<unknown> {
    const answer = reported(read, report);
    const { signal } = read.settings;
    if (!signal) return answer;
    return answer.catch((error: unknown) => {
      if (!signal.aborted || settings.signal === signal || settings.signal?.aborted) throw error;
      participant?.resumes();
      return this.read(read.key, loader, settings, participant);
    });
  }

  /** A read after the current one, with the loader and in the async context of this caller. */
  private nextRead(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
  ): NextRead {
    const caller = new AsyncResource('CacheRead');
    const start = (strong: boolean) => {
      participant?.resumes();
      return new Read(this.context, key, loader, { ...settings, strong }, participant).start(true);
    };
    return new NextRead((strong) => caller.runInAsyncScope(start, undefined, strong), settings.signal !== undefined);
  }

  /** Whether a tag of the options was invalidated since the read started. No caller joins it then. */
  private isOutdated(current: Read, { tags }: EntrySettings): boolean {
    const { invalidatedTags } = this.context;
    if (current.startedAt === invalidatedTags.count) return false;
    if (![current.tags, tags].some((named) => invalidatedTags.anySince(named, current.startedAt))) return false;
    current.detach();
    return true;
  }

  /**
   * Joins a read although tags were invalidated since it started, because the tags of its value are known only when it
   * ends. The value counts unless it has one of those tags. Otherwise, and after an error (which does not tell the
   * tags), the next read counts, which starts after this call.
   */
  private async joinLate(
    current: Read,
    loader: Loader<unknown>,
    settings: EntrySettings,
    participant: BatchParticipant | undefined,
    report: ReadReport | undefined,
  ): Promise<unknown> {
    const { flights, invalidatedTags } = this.context;
    participant?.waits();
    const outdated = await current.promise.then(
      () => invalidatedTags.anySince(current.tags, current.startedAt),
      () => true,
    );
    if (!outdated) return reported(current, report);
    const { key } = current;
    const next = (settings.forceFresh ? flights.forced : flights.ordinary).get(key)?.read;
    if (next) return this.shared(next, loader, settings, participant, report);
    participant?.resumes();
    return reported(new Read(this.context, key, loader, settings, participant).start(true), report);
  }
}

/** A read that starts when the one before it ends, or is detached. */
export class NextRead {
  readonly read: Promise<Read>;
  /** Whether one of its callers wants it strong. */
  isStrong = false;
  private begin!: (read: Read) => void;
  private begun = false;
  private shared: Promise<unknown> | undefined = undefined;

  constructor(
    private readonly beginner: (strong: boolean) => Read,
    /** Whether the caller who begins it has a signal. */
    readonly abortable: boolean,
  ) {
    this.read = new Promise((resolve) => (this.begin = resolve));
  }

  start(): void {
    if (this.begun) return;
    this.begun = true;
    this.begin(this.beginner(this.isStrong));
  }

  /** Its value: one promise for all callers. */
  get value(): Promise<unknown> {
    return (this.shared ??= this.read.then(({ promise }) => promise));
  }
}

/** Reads through the first level, and through the store if that has no value. */
export class FirstLevelReads {
  constructor(
    private readonly firstLevel: FirstLevel,
    private readonly secondLevel: SingleFlight,
    private readonly context: ReadContext,
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
    const revived = await this.context.values.revive(key, revive, kept.value);
    if (!revived) return this.secondLevel.read(key, loader, settings, participant);
    this.hit(key, loader, settings, { entry: kept.entry, value: revived.value }, participant);
    return revived.value;
  }

  private hit(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    kept: Kept,
    participant: BatchParticipant | undefined,
  ): void {
    const { counters, refresher } = this.context;
    counters.firstLevelHits += 1;
    if (cacheChannels.hit.hasSubscribers) publishHit(key, settings.template, 'first');
    currentReport()?.add({ outcome: 'hit', remaining: kept.entry.expiresAt - Date.now() });
    if (isDueForRefresh(kept.entry, settings)) refresher.refresh(key, loader, settings, kept, participant);
  }
}

/** The reads of this process that are under way. For each key, callers can join at most one of either kind. */
export class Flights {
  readonly ordinary = new Map<string, KeyPlace<Read>>();
  /** Those that load even if a value is stored; only callers with `forceFresh` join them. */
  readonly forced = new Map<string, KeyPlace<Read>>();
  /** Those that keep the process alive. Not a `Set`: it would keep most of them in its outgrown tables. */
  readonly awake = new LinkedList<PlaceOf<Read>>();
  closed = false;

  detach(key: string): void {
    this.ordinary.get(key)?.read?.detach();
    this.forced.get(key)?.read?.detach();
  }

  /** Callers still join the read, because its value is as new as when it started. */
  outdate(key: string): void {
    for (const flights of [this.ordinary, this.forced]) {
      const read = flights.get(key)?.read;
      if (read) read.outdated = true;
    }
  }

  detachMatching(matches: (key: string) => boolean): void {
    for (const flights of [this.ordinary, this.forced]) {
      // A copy, as a read that is detached may begin the next one.
      const all = Array.from(flights);
      for (const [key, { read }] of all) if (matches(key)) read?.detach();
    }
  }

  /** Called when the application has ended: a loader that never settles does not keep the process alive. */
  close(): void {
    this.closed = true;
    for (const { value } of this.awake.toArray()) value.letEnd();
  }
}
