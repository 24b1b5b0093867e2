/*
 * One read of a key, from the call to its value. A miss passes these places, in this order:
 *
 * - `FirstLevelReads` in `single-flight.ts`, if the cache has a first level: it has no value of the key.
 * - `SingleFlight` there: no read of the key is under way that the call may share, so it begins one.
 * - `Read` here: `start` waits for the changes that this process made before, and asks the store; `onData` finds no
 *   value that may be served. Where misses are likely, it asks for the value or the load lease at once.
 * - `Fill` in `fill.ts`: `start` counts the miss and asks the Bloom filter, if there is one; `requestLease` asks for
 *   the load lease of the key.
 * - `LoadLeases` in `load/load-lease.ts`: the store grants a `LoadLease` to one caller of all processes. It tells
 *   others that somebody loads or has loaded, and `OtherLoads` (`fill.ts`) waits for that value; or that a write is
 *   under way, and the load goes on without being stored.
 * - `Load` in `load/load.ts`: `start` calls the loader, with its time limit, inside its `LoadScopes`
 *   (`load/load-scopes.ts`), while the lease is renewed. `store` seals the value, and `commit` stores it with the token
 *   of the lease. The store refuses it if the key was invalidated meanwhile; the callers get it all the same.
 * - `Fill` gets the result back, and `Read.landLoaded` gives it to the first level and to all callers: as soon as
 *   the commit is on its way, unless they want to know what becomes of it.
 *
 * A hit ends in `Read.serve`; one with tags passes `lookUpTagged` or `checkTags`. `onFailure` goes without the store.
 */

import { AsyncResource } from 'node:async_hooks';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import { cacheChannels } from '../../events/cache-channels.js';
import { PlaceOf } from '../../timing/brief-collections.js';
import { mayEnd, mustNotEnd } from '../../timing/clock.js';
import type { InvalidatedTags } from '../invalidation/local-state.js';
import type { KeyPlace, StepOrder } from '../invalidation/step-order.js';
import type { UnconfirmedDeletions } from '../invalidation/unconfirmed-deletions.js';
import type { Loader } from '../load/cache-loader.js';
import type { LoadResult } from '../load/load.js';
import type { LeaseOutcome, ReadInstead } from '../load/load-lease.js';
import type { LoadScopes } from '../load/load-scopes.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { publishHit } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { Entry, TagStamp } from '../values/envelope.js';
import type { FirstLevel, Kept } from '../values/first-level.js';
import type { BatchParticipant } from './batch-load.js';
import { Fill, type FillContext, type Refresher } from './fill.js';
import type { ReadOutcome } from './read-report.js';
import type { Flights, NextRead } from './single-flight.js';
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

/** The beginning of every stored value. */
const ANY_VALUE = Buffer.alloc(0);

/** What the reads of one cache use: to look up values, and to load them. */
export interface ReadContext extends FillContext {
  readonly flights: Flights;
  readonly calls: StoreCalls;
  readonly stepOrder: StepOrder;
  readonly unconfirmed: UnconfirmedDeletions;
  readonly invalidatedTags: InvalidatedTags;
  readonly values: StoredValues;
  readonly firstLevel: FirstLevel | undefined;
  readonly scopes: LoadScopes;
  readonly refresher: Refresher;
  readonly missShares: MissShares;
}

/**
 * One read of a key that callers of this process share. Looks up the value: serves it, fresh or stale, or starts a
 * load; and knows who may join it, and how it ended.
 */
export class Read {
  readonly promise: Promise<unknown>;
  /** Whether the value may be older than an invalidation or than the stored value; the first level does not take it. */
  outdated = false;
  /** Whether it has ended with a stale value while its load still runs. */
  endedEarly = false;
  /** Set when the read ends. */
  outcome: ReadOutcome = 'miss';
  /** When the `ttl` of the value ends, in ms of the wall clock; absent if the value is not stored. */
  freshUntil: number | undefined = undefined;
  /** Whether it has ended with a value that is still being stored. */
  isStoring = false;
  /** The tags of the value: until the read ends, those that its options name. */
  tags: readonly string[];
  /** The count of `InvalidatedTags` at the start. */
  readonly startedAt: number;
  /** The context of the caller, in which the loader runs: the store may reply in the context of another read. */
  readonly caller = new AsyncResource('CacheRead');
  private readonly generation: number;
  /** The read after this one, if a caller has asked for it. */
  next: NextRead | undefined = undefined;
  /** Where callers find it. */
  private readonly places: Map<string, KeyPlace<Read>>;
  private place: KeyPlace<Read> | undefined = undefined;
  /** Where this read counts as a hit or a miss; absent if the options say what to expect. */
  private share: MissShare | undefined = undefined;
  private awake: PlaceOf<Read> | undefined = undefined;
  private onStored: (() => void)[] | undefined = undefined;
  private resolve!: (value: unknown) => void;
  private reject!: (error: unknown) => void;

  constructor(
    readonly context: ReadContext,
    readonly key: string,
    readonly loader: Loader<unknown>,
    readonly settings: EntrySettings,
    readonly participant: BatchParticipant | undefined,
  ) {
    const { flights, firstLevel, invalidatedTags } = context;
    this.places = settings.forceFresh ? flights.forced : flights.ordinary;
    this.tags = settings.tags;
    this.startedAt = invalidatedTags.count;
    this.generation = firstLevel && !settings.strong ? firstLevel.generation : -1;
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  /** `shared`: callers may join it. */
  start(shared: boolean): this {
    const { key, places } = this;
    const { stepOrder } = this.context;
    if (shared) {
      this.place = places.get(key);
      if (this.place) this.place.read = this;
      else places.set(key, (this.place = { read: this, steps: 0, ended: undefined, end: undefined }));
    }
    const changes = stepOrder.busy > 0 ? stepOrder.afterKey(key) : undefined;
    if (changes) this.follow(changes.then(() => this.lookUp()));
    else {
      try {
        this.lookUp();
      } catch (error) {
        this.fail(error);
      }
    }
    return this;
  }

  private lookUp(): void {
    const { context, key, settings } = this;
    const { calls, leases, scopes, stepOrder, unconfirmed } = context;
    if (scopes.running > 0 && scopes.wouldWaitForItself(key)) return this.fill().loadUnstored();
    if (unconfirmed.pending.size > 0 && unconfirmed.pending.covering(key)) return this.doWithoutDoubted();
    if (settings.forceFresh) return this.fill().start(ANY_VALUE);
    if (!settings.bloom && leases.canRead) {
      this.share = settings.expect === undefined ? context.missShares.of(settings) : undefined;
      // There is probably no value: to ask for the load lease at once saves a round trip.
      if (this.share ? this.share.isLikely : settings.expect === 'miss') {
        const changes = settings.tags.length > 0 ? stepOrder.afterTags(settings.tags) : undefined;
        return changes ? this.follow(changes.then(() => this.readOrLease())) : this.readOrLease();
      }
    }
    if (settings.tags.length > 0) return this.follow(this.lookUpTagged());
    const ask = () => calls.store.read(key);
    const failed = (error: CacheBackendError) => this.onFailure(error);
    calls.send('read', key, ask, (data) => this.onData(data), failed);
  }

  private readOrLease(): void {
    const { context, key, settings } = this;
    const answered = (outcome: ReadInstead | LeaseOutcome) => {
      try {
        this.share?.note(!('data' in outcome));
        if ('data' in outcome) this.onReadInstead(outcome);
        else this.fill().start(undefined, outcome);
      } catch (error) {
        this.fail(error);
      }
    };
    context.leases.requestOrRead(key, settings, answered, (error) => this.onFailure(error));
  }

  private onReadInstead({ data, tagVersions }: ReadInstead): void {
    const { context, key, settings } = this;
    const { tags } = settings;
    const found = context.values.decode(key, data);
    if (!found) return this.fill().start(data);
    const stamp = found.entry?.tags;
    if (!stamp && tags.length === 0) return this.serve(found);
    const isOfThese = stamp !== undefined && Object.keys(stamp).length === tags.length;
    const isCurrent = isOfThese && tags.every((tag, index) => stamp[tag] === tagVersions[index]?.version);
    // A tag that was expired softly has more than a version.
    if (!isCurrent) this.follow(this.checkTags(found));
    else if (context.unconfirmed.coversTags(stamp)) this.doWithoutDoubted(stamp);
    else this.serve(found);
  }

  private onData(data: Buffer | null): void {
    try {
      this.share?.note(data === null);
      const found = data === null ? undefined : this.context.values.decode(this.key, data);
      if (!found) this.fill().start(data ?? undefined);
      else if (found.entry?.tags) this.follow(this.checkTags(found));
      else this.serve(found);
    } catch (error) {
      this.fail(error);
    }
  }

  /** Serves the value, fresh or stale, or starts a load. */
  private serve(found: FoundValue): void {
    const { context, key, settings } = this;
    const { revive, refreshAhead } = settings;
    if (revive && !found.revived) return this.serveRevived(found, revive);
    if (isFresh(found)) {
      context.counters.secondLevelHits += 1;
      if (cacheChannels.hit.hasSubscribers) publishHit(key, settings.template, 'second');
      if (refreshAhead && isDueForRefresh(found.entry, settings)) this.refresh(found);
      return this.landFound(found, 'hit');
    }
    if (!isServableStale(found, settings)) return this.fill().start(found.data);
    const rests = settings.staleIfError && context.resting.has(key, found.entry?.tags);
    if (settings.softTimeout > 0 && !rests) return this.fill(found).start(found.data);
    if (!rests) this.refresh(found);
    this.serveStale(found);
  }

  private serveRevived(found: FoundValue, revive: NonNullable<EntrySettings['revive']>): void {
    const judged = (revived: Revived | undefined) => {
      if (revived) this.serve({ ...found, revived });
      else this.fill().start(found.data);
    };
    const revived = this.context.values.revive(this.key, revive, found.value);
    if (revived instanceof Promise) return this.follow(revived.then(judged));
    judged(revived);
  }

  serveStale(found: FoundValue): void {
    this.context.counters.staleHits += 1;
    if (cacheChannels.hit.hasSubscribers) publishHit(this.key, this.settings.template, 'second', true);
    this.landFound(found, 'stale');
  }

  private refresh(found: FoundValue): void {
    const { context, key, loader, settings, participant } = this;
    context.refresher.refresh(key, loader, settings, found, participant);
  }

  /** Keeps the process alive until it ends: the loader, or the wait for another one, may do nothing for it. */
  private fill(stale?: FoundValue): Fill {
    const { flights } = this.context;
    if (!flights.closed && !this.awake) {
      this.awake = flights.awake.push(new PlaceOf<Read>(this));
      mustNotEnd();
    }
    return new Fill(this, stale);
  }

  private async lookUpTagged(): Promise<void> {
    const { key, settings } = this;
    const { unconfirmed, values } = this.context;
    let read: Awaited<ReturnType<StoredValues['readWithTags']>>;
    try {
      read = await values.readWithTags(key, settings.tags);
    } catch (error) {
      return this.onFailure(error as CacheBackendError);
    }
    const [data, states] = read;
    this.share?.note(data === null);
    const found = data === null ? undefined : values.decode(key, data);
    const stamp = found?.entry?.tags;
    const judged = found && stamp && withTagStates(found, settings.tags, states);
    if (!judged) return this.fill().start(data ?? undefined);
    if (Object.keys(stamp).length > settings.tags.length) return this.checkTags(found);
    if (unconfirmed.coversTags(stamp)) return this.doWithoutDoubted(stamp);
    this.serve(judged);
  }

  private async checkTags(found: FoundValue): Promise<void> {
    const { key, settings } = this;
    const { unconfirmed, values } = this.context;
    const stamp = found.entry?.tags;
    if (unconfirmed.coversTags(stamp)) return this.doWithoutDoubted(stamp);
    let judged: FoundValue | undefined;
    try {
      judged = await values.checkTags(key, found, settings.tags);
    } catch (error) {
      return this.onFailure(error as CacheBackendError);
    }
    if (judged) this.serve(judged);
    else this.fill().start(found.data);
  }

  private onFailure(error: CacheBackendError): void {
    const { context, key, settings } = this;
    const spare = settings.strong ? undefined : context.firstLevel?.spare(key);
    if (!spare || !hasTags(spare.entry, settings.tags)) return this.fill().doWithoutStore(error);
    context.counters.redisErrors += 1;
    this.follow(this.serveSpare(spare, error));
  }

  /** Serves a value of the first level while the store is down. */
  private async serveSpare({ entry, value }: Kept, error: CacheBackendError): Promise<void> {
    const { context, key, settings } = this;
    const revived = settings.revive ? await context.values.revive(key, settings.revive, value) : { value };
    if (!revived) return this.fill().doWithoutStore(error);
    context.counters.firstLevelHits += 1;
    if (cacheChannels.hit.hasSubscribers) publishHit(key, settings.template, 'first');
    this.outcome = 'hit';
    this.freshUntil = entry.expiresAt;
    this.land(revived.value);
  }

  /** Goes on without the value, because Redis has not confirmed its deletion. */
  private doWithoutDoubted(tags?: TagStamp): void {
    const { key, settings } = this;
    const doubt = settings.failOpen ? undefined : this.context.unconfirmed.doubtAbout(key, tags);
    if (doubt) this.fail(doubt);
    else this.fill().loadUnstored();
  }

  /** Ends with a value of the store. */
  landFound(found: FoundValue, outcome: 'hit' | 'stale'): void {
    const { entry, revived } = found;
    const { firstLevel } = this.context;
    this.outcome = outcome;
    if (outcome === 'hit') {
      this.freshUntil = entry?.expiresAt;
      // A copy, because the payload is a slice of the client's reply.
      if (firstLevel && entry) this.keep(firstLevel, entry, true);
    }
    if (entry?.tags) this.tags = Object.keys(entry.tags);
    this.land(revived ? revived.value : found.value);
  }

  /** Ends with a loaded value. `isStoring`: the store has not answered yet, and `stored` follows. */
  landLoaded({ value, entry, freshUntil }: LoadResult, isStoring: boolean): void {
    const { flights, firstLevel } = this.context;
    this.freshUntil = freshUntil;
    this.isStoring = isStoring;
    // The value that an ordinary read has found meanwhile is older.
    const ordinary = this.settings.forceFresh ? flights.ordinary.get(this.key)?.read : undefined;
    if (ordinary) ordinary.outdated = true;
    if (firstLevel && entry) this.keep(firstLevel, entry, false);
    this.land(value);
  }

  /** The store has answered, or failed, after the read had ended. `freshUntil` is absent if it has not stored. */
  stored({ freshUntil }: LoadResult): void {
    this.freshUntil = freshUntil;
    this.isStoring = false;
    if (freshUntil === undefined) this.context.firstLevel?.delete(this.key);
    if (this.awake) this.letEnd();
    for (const listener of this.onStored ?? []) listener();
  }

  /** Resolves when the value has been stored, or is not going to be. */
  async untilStored(): Promise<void> {
    if (this.isStoring) await new Promise<void>((resolve) => (this.onStored ??= []).push(resolve));
  }

  /** Ends with the value. */
  land(value: unknown): void {
    this.detach(false);
    if (this.awake && !this.isStoring) this.letEnd();
    this.resolve(value);
  }

  fail(error: unknown): void {
    this.detach(false);
    if (this.awake) this.letEnd();
    this.reject(error);
  }

  /** Fails with an error of these steps, on which nothing else waits. */
  follow(steps: Promise<void>): void {
    steps.catch((error: unknown) => this.fail(error));
  }

  /** Lets no further caller join. */
  detach(outdated = true): void {
    const { place } = this;
    this.outdated ||= outdated;
    if (place?.read === this) {
      place.read = undefined;
      if (place.steps === 0) this.places.delete(this.key);
    }
    this.next?.start();
  }

  letEnd(): void {
    if (this.awake?.leave()) mayEnd();
  }

  /** Keeps the value in the first level, unless an invalidation of it arrived, or was missed, since the start. */
  private keep(firstLevel: FirstLevel, entry: Entry, copies: boolean): void {
    if (this.outdated || this.endedEarly || firstLevel.generation !== this.generation) return;
    const { tags } = entry;
    if (tags && this.context.invalidatedTags.anySince(Object.keys(tags), this.startedAt)) return;
    firstLevel.keep(this.key, copies ? { ...entry, payload: Buffer.from(entry.payload) } : entry);
  }
}
