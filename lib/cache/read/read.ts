/*
 * One read of a key, from its look-up to its value. `single-flight.ts` decides which calls share it. A miss passes these
 * places, in this order:
 *
 * - `Read` here: `start` waits for the changes that this process made before and asks the store; `onData` finds no value
 *   that may be served.
 * - `Fill` in `fill.ts`: `start` counts the miss and asks the Bloom filter, if there is one; `requestLease` asks for the
 *   load lease of the key.
 * - `LoadLeases` in `load/load-lease.ts`: the store grants a `LoadLease` to one caller of all processes. It tells others
 *   that somebody loads or has loaded, and `OtherLoads` (`fill.ts`) waits for that value; or that a write is under way,
 *   and the load goes on without being stored.
 * - `Loads` in `load/loader-runner.ts`: `underLease` renews the lease while the loader runs, with its time limit, inside
 *   its `LoadScopes` (`load/load-scopes.ts`).
 * - `LoadCommits` in `load/load-commits.ts`: `store` seals the value and commits it with the token of the lease. The
 *   store refuses it if the key was invalidated meanwhile; the callers get it all the same.
 * - `Fill.load` gets the result back, and `Flight.landLoaded` here gives it to the first level and to all callers.
 *
 * A value with tags passes `lookUpTagged` or `checkTags` as well; `onFailure` is the way without the store.
 */

import { AsyncResource } from 'node:async_hooks';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import { cacheChannels } from '../../events/cache-channels.js';
import type { Loader } from '../load/cache-loader.js';
import type { LoadResult } from '../load/load-commits.js';
import type { LoadScopes } from '../load/load-scopes.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { publishHit } from '../store/cache-stats.js';
import type { Entry, TagStamp } from '../values/envelope.js';
import type { FirstLevel, Kept } from '../values/first-level.js';
import type { BatchParticipant } from './batch-load.js';
import { Fill, type FillContext, type Refresher } from './fill.js';
import type { ReadOutcome } from './read-report.js';
import type { Flights } from './single-flight.js';
import {
  hasTags,
  isDueForRefresh,
  isFresh,
  isServableStale,
  withTagStates,
  type FoundValue,
  type Revived,
  type StoredValues,
} from './stored-values.js';

/** The beginning of every stored value. */
const ANY_VALUE = Buffer.alloc(0);

/** What the reads of one cache use: to look up values, and to load them. */
export interface ReadContext extends FillContext {
  readonly values: StoredValues;
  readonly firstLevel: FirstLevel | undefined;
  readonly scopes: LoadScopes;
  readonly refresher: Refresher;
}

/** Looks up the value of a flight: serves it, fresh or stale, or starts a load. */
export class Read {
  /** The context of the caller, in which the loader runs: the store may reply in the context of another read. */
  private readonly caller = new AsyncResource('CacheRead');

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
    if (settings.tags.length > 0) return this.flight.follow(this.lookUpTagged());
    context.values.send(key, this.onData, this.onFailure);
  }

  private readonly onData = (data: Buffer | null): void => {
    try {
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
    this.caller.runInAsyncScope(() => context.refresher.refresh(key, loader, settings, found, participant));
  }

  private fill(stale?: FoundValue): Fill {
    const { context, flight, loader, settings, participant, caller } = this;
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
    flight.landFirstLevel(revived.value, entry.expiresAt);
  }

  /** Goes on without the value, because Redis has not confirmed its deletion. */
  private doWithoutDoubted(tags?: TagStamp): void {
    const { key, settings } = this;
    const doubt = settings.failOpen ? undefined : this.context.values.doubtAbout(key, tags);
    if (doubt) this.flight.fail(doubt);
    else this.fill().loadUnstored();
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
  /** The count of `InvalidatedTags` at the start. */
  readonly startedAt: number;
  private readonly generation: number;
  private onEnd: (() => void)[] | undefined;
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
  ) {
    this.startedAt = flights.invalidatedTags.count;
    this.generation = flights.firstLevel?.generation ?? 0;
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  /** Ends with the value. */
  land(value: unknown): void {
    this.detach(false);
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

  /** Ends with a value of the first level, while the store is down. */
  landFirstLevel(value: unknown, freshUntil: number): void {
    this.outcome = 'hit';
    this.freshUntil = freshUntil;
    this.land(value);
  }

  /** Ends with a loaded value. */
  landLoaded({ value, entry, freshUntil }: LoadResult): void {
    this.freshUntil = freshUntil;
    // The value that an ordinary read has found meanwhile is older.
    if (this.forced) this.flights.outdate(this.key, false);
    if (entry && this.mayKeep(entry)) this.keep(entry);
    this.land(value);
  }

  fail(error: unknown): void {
    this.detach(false);
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
  startNext(start: (strong: boolean) => Flight): NextFlight {
    const flight = new Promise<Flight>((resolve) => {
      (this.onEnd ??= []).push(() => resolve(start(this.nextIsStrong)));
    });
    return (this.next = new NextFlight(flight));
  }

  /** Lets no further caller join. */
  detach(outdated = true): void {
    this.outdated ||= outdated;
    this.flights.leave(this);
    const { onEnd } = this;
    this.onEnd = undefined;
    if (onEnd) for (const listener of onEnd) listener();
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
export class NextFlight {
  private shared: Promise<unknown> | undefined;

  constructor(readonly flight: Promise<Flight>) {}

  /** Its value: one promise for all callers. */
  get value(): Promise<unknown> {
    return (this.shared ??= this.flight.then(({ promise }) => promise));
  }
}
