/*
 * One read of a key, from the call to its value. A miss passes these places, in this order:
 *
 * - `FirstLevelReads` here, if the cache has a first level: it has no value of the key.
 * - `SingleFlight` in `single-flight.ts`: no read of the key is under way that the call may share, so it begins one, a
 *   `Flight`.
 * - `Read` here: `start` waits for the changes that this process made before, and asks the store; `onData` finds no
 *   value that may be served. Where misses are likely, it asks for the value or the load lease at once.
 * - `Fill` in `fill.ts`: `start` counts the miss and asks the Bloom filter, if there is one; `requestLease` asks for
 *   the load lease of the key.
 * - `LoadLeases` in `load/load-lease.ts`: the store grants a `LoadLease` to one caller of all processes. It tells
 *   others that somebody loads or has loaded, and `OtherLoads` (`fill.ts`) waits for that value; or that a write is
 *   under way, and the load goes on without being stored.
 * - `Loads` in `load/loader-runner.ts`: `underLease` renews the lease while the loader runs, with its time limit,
 *   inside its `LoadScopes` (`load/load-scopes.ts`).
 * - `LoadCommits` in `load/load-commits.ts`: `store` seals the value and commits it with the token of the lease. The
 *   store refuses it if the key was invalidated meanwhile; the callers get it all the same.
 * - `Fill.load` gets the result back, and `Flight.landLoaded` (`single-flight.ts`) gives it to the first level and to
 *   all callers: as soon as the commit is on its way, unless they want to know what becomes of it.
 *
 * A hit ends in `Read.serve`. A value with tags passes `lookUpTagged` or `checkTags` as well; `onFailure` is the way
 * without the store.
 */

import { AsyncResource } from 'node:async_hooks';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import { cacheChannels } from '../../events/cache-channels.js';
import type { Loader } from '../load/cache-loader.js';
import type { LoadScopes } from '../load/load-scopes.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { LeaseOutcome, ReadInstead } from '../load/load-lease.js';
import { publishHit, type CacheCounters } from '../store/cache-stats.js';
import type { TagStamp } from '../values/envelope.js';
import type { FirstLevel, Kept } from '../values/first-level.js';
import type { BatchParticipant } from './batch-load.js';
import { Fill, type FillContext, type Refresher } from './fill.js';
import { currentReport } from './read-report.js';
import type { Flight, SingleFlight } from './single-flight.js';
import {
  hasTags,
  isDueForRefresh,
  isFresh,
  isServableStale,
  type MissShare,
  type MissShares,
  withTagStates,
  type FoundValue,
  type Revived,
  type StoredValues,
} from './stored-values.js';

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

/** The beginning of every stored value. */
const ANY_VALUE = Buffer.alloc(0);

/** What the reads of one cache use: to look up values, and to load them. */
export interface ReadContext extends FillContext {
  readonly values: StoredValues;
  readonly firstLevel: FirstLevel | undefined;
  readonly scopes: LoadScopes;
  readonly refresher: Refresher;
  readonly missShares: MissShares;
}

/** Looks up the value of a flight: serves it, fresh or stale, or starts a load. */
export class Read {
  /** The context of the caller, in which the loader runs: the store may reply in the context of another read. */
  private readonly caller = new AsyncResource('CacheRead');
  /** Where this read counts as a hit or a miss; absent if the options say what to expect. */
  private share: MissShare | undefined;

  constructor(
    private readonly context: ReadContext,
    private readonly flight: Flight,
    private readonly loader: Loader<unknown>,
    private readonly settings: EntrySettings,
    private readonly participant: BatchParticipant | undefined,
  ) {}

  private get key(): string {
    return this.flight.key;
  }

  start(): void {
    const changes = this.context.values.afterChanges(this.key);
    if (changes) return this.flight.follow(changes.then(() => this.lookUp()));
    try {
      this.lookUp();
    } catch (error) {
      this.flight.fail(error);
    }
  }

  private lookUp(): void {
    const { context, key, settings } = this;
    const { scopes } = context;
    if (scopes.running > 0 && scopes.wouldWaitForItself(key)) return this.fill().loadUnstored();
    if (context.values.isInDoubt(key)) return this.doWithoutDoubted();
    if (settings.forceFresh) return this.fill().start(ANY_VALUE);
    if (this.expectsMiss()) return this.readOrLease();
    if (settings.tags.length > 0) return this.flight.follow(this.lookUpTagged());
    context.values.send(key, this.onData, this.onFailure);
  }

  /** Whether there is probably no value, so that to ask for the load lease at once saves a round trip. */
  private expectsMiss(): boolean {
    const { context, settings } = this;
    if (settings.bloom || !context.leases.canRead) return false;
    if (settings.expect !== undefined) return settings.expect === 'miss';
    this.share = context.missShares.of(settings);
    return this.share.isLikely;
  }

  private readOrLease(): void {
    const { context, key, settings } = this;
    const answered = (outcome: ReadInstead | LeaseOutcome) => {
      try {
        this.share?.note(!('data' in outcome));
        if ('data' in outcome) this.onReadInstead(outcome);
        else this.fill().startWith(outcome);
      } catch (error) {
        this.flight.fail(error);
      }
    };
    const ask = () => context.leases.requestOrRead(key, settings, answered, this.onFailure);
    const changes = settings.tags.length > 0 ? context.values.afterTagChanges(settings.tags) : undefined;
    if (changes) this.flight.follow(changes.then(ask));
    else ask();
  }

  private onReadInstead({ data, tagVersions }: ReadInstead): void {
    const { context, key, settings } = this;
    const { tags } = settings;
    const found = context.values.decode(key, data);
    if (!found) return this.fill().start(data);
    const stamp = found.entry?.tags;
    if (!stamp && tags.length === 0) return this.judge(found);
    const isOfThese = stamp !== undefined && Object.keys(stamp).length === tags.length;
    const isCurrent = isOfThese && tags.every((tag, index) => stamp[tag] === tagVersions[index]?.version);
    // A tag that was expired softly has more than a version.
    if (!isCurrent) this.flight.follow(this.checkTags(found));
    else if (context.values.areTagsInDoubt(stamp)) this.doWithoutDoubted(stamp);
    else this.judge(found);
  }

  private readonly onData = (data: Buffer | null): void => {
    try {
      this.share?.note(data === null);
      const found = this.context.values.decode(this.key, data);
      if (!found) this.fill().start(data ?? undefined);
      else if (found.entry?.tags) this.flight.follow(this.checkTags(found));
      else this.judge(found);
    } catch (error) {
      this.flight.fail(error);
    }
  };

  private judge(found: FoundValue): void {
    const { revive } = this.settings;
    if (!revive) return this.serve(found);
    const judged = (revived: Revived | undefined) => {
      if (revived) this.serve({ ...found, revived });
      else this.fill().start(found.data);
    };
    const revived = this.context.values.revive(this.key, revive, found.value);
    if (revived instanceof Promise) return this.flight.follow(revived.then(judged));
    judged(revived);
  }

  /** Serves the value, fresh or stale, or starts a load. */
  private serve(found: FoundValue): void {
    const { context, settings, flight } = this;
    if (isFresh(found)) {
      context.counters.secondLevelHits += 1;
      if (cacheChannels.hit.hasSubscribers) publishHit(this.key, settings.template, 'second');
      if (isDueForRefresh(found.entry, settings)) this.refresh(found);
      return flight.landFresh(found);
    }
    if (!isServableStale(found, settings)) return this.fill().start(found.data);
    const rests = settings.staleIfError && context.resting.has(this.key);
    if (settings.softTimeout > 0 && !rests) return this.fill(found).start(found.data);
    if (!rests) this.refresh(found);
    context.counters.staleHits += 1;
    if (cacheChannels.hit.hasSubscribers) publishHit(this.key, settings.template, 'second', true);
    flight.landStale(found);
  }

  private refresh(found: FoundValue): void {
    const { context, key, loader, settings, participant } = this;
    context.refresher.refresh(key, loader, settings, found, participant);
  }

  private fill(stale?: FoundValue): Fill {
    const { context, flight, loader, settings, participant, caller } = this;
    flight.keepAwake();
    return new Fill(context, flight, loader, settings, participant, caller, stale);
  }

  private async lookUpTagged(): Promise<void> {
    const { key, settings } = this;
    const { values } = this.context;
    let read: Awaited<ReturnType<StoredValues['readWithTags']>>;
    try {
      read = await values.readWithTags(key, settings.tags);
    } catch (error) {
      return this.onFailure(error as CacheBackendError);
    }
    const [data, states] = read;
    this.share?.note(data === null);
    const found = values.decode(key, data);
    const stamp = found?.entry?.tags;
    const judged = found && stamp && withTagStates(found, settings.tags, states);
    if (!judged) return this.fill().start(data ?? undefined);
    if (Object.keys(stamp).length > settings.tags.length) return this.checkTags(found);
    if (values.areTagsInDoubt(stamp)) return this.doWithoutDoubted(stamp);
    this.judge(judged);
  }

  private async checkTags(found: FoundValue): Promise<void> {
    const { key, settings } = this;
    const { values } = this.context;
    const stamp = found.entry?.tags;
    if (values.areTagsInDoubt(stamp)) return this.doWithoutDoubted(stamp);
    let judged: FoundValue | undefined;
    try {
      judged = await values.checkTags(key, found, settings.tags);
    } catch (error) {
      return this.onFailure(error as CacheBackendError);
    }
    if (judged) this.judge(judged);
    else this.fill().start(found.data);
  }

  private readonly onFailure = (error: CacheBackendError): void => {
    const { context, key, settings } = this;
    const spare = settings.strong ? undefined : context.firstLevel?.spare(key);
    if (!spare || !hasTags(spare.entry, settings.tags)) return this.fill().doWithoutStore(error);
    context.counters.redisErrors += 1;
    this.flight.follow(this.serveSpare(spare, error));
  };

  /** Serves a value of the first level while the store is down. */
  private async serveSpare({ entry, value }: Kept, error: CacheBackendError): Promise<void> {
    const { context, key, settings, flight } = this;
    const revived = settings.revive ? await context.values.revive(key, settings.revive, value) : { value };
    if (!revived) return this.fill().doWithoutStore(error);
    context.counters.firstLevelHits += 1;
    if (cacheChannels.hit.hasSubscribers) publishHit(key, settings.template, 'first');
    flight.outcome = 'hit';
    flight.freshUntil = entry.expiresAt;
    flight.land(revived.value);
  }

  /** Goes on without the value, because Redis has not confirmed its deletion. */
  private doWithoutDoubted(tags?: TagStamp): void {
    const { key, settings } = this;
    const doubt = settings.failOpen ? undefined : this.context.values.doubtAbout(key, tags);
    if (doubt) this.flight.fail(doubt);
    else this.fill().loadUnstored();
  }
}
