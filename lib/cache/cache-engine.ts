import { randomBytes } from 'node:crypto';
import type { CacheListener, CacheStore, CacheTracker } from '../contracts/cache-store.js';
import { CacheConfigError } from '../errors/cache-errors.js';
import type { LimitedLog, Warnings } from '../errors/limited-log.js';
import { DoubleDeletions, ScheduledDeletionsRunner, type DueDeletions } from './invalidation/double-deletions.js';
import { Invalidations, MatchingDeletions, Mutations } from './invalidation/invalidations.js';
import { InvalidatedTags, LocalState } from './invalidation/local-state.js';
import { StepOrder } from './invalidation/step-order.js';
import { UnconfirmedDeletions } from './invalidation/unconfirmed-deletions.js';
import { LoadLeases } from './load/load-lease.js';
import { LoadScopes, LoadWaiters } from './load/load-scopes.js';
import { TagStamps } from './load/tag-stamps.js';
import { Loads } from './load/load.js';
import type { CacheSettings } from './options/cache-options.js';
import { OtherLoads, Refresher, RestingKeys } from './read/fill.js';
import { FirstLevelReads, Flights, SingleFlight } from './read/single-flight.js';
import { MissShares, StoredValues } from './read/stored-values.js';
import { CacheCounters, type CacheStats } from './store/cache-stats.js';
import { StoreCalls } from './store/store-calls.js';
import { Envelopes, typedSerializer } from './values/envelope.js';
import type { FirstLevel } from './values/first-level.js';
import { UnkeptClasses } from './values/unkept-classes.js';

/** The parts of the cache on one store, and what they do with messages of other processes. */
export class CacheEngine implements CacheListener {
  readonly counters = new CacheCounters();
  readonly stepOrder: StepOrder;
  readonly invalidatedTags = new InvalidatedTags();
  readonly calls: StoreCalls;
  readonly envelopes: Envelopes;
  readonly tagStamps: TagStamps;
  readonly firstLevel: FirstLevel | undefined;
  readonly local: LocalState;
  readonly unconfirmed: UnconfirmedDeletions;
  readonly invalidations: Invalidations;
  readonly matchingDeletions: MatchingDeletions;
  readonly mutations: Mutations;
  readonly doubleDeletions: DoubleDeletions;
  readonly scheduled: ScheduledDeletionsRunner;
  readonly loadScopes: LoadScopes;
  readonly values: StoredValues;
  /** Through the first level, where there is one. */
  readonly reads: FirstLevelReads | SingleFlight;
  readonly refresher: Refresher;
  /** Whether messages of other processes have arrived at some time. */
  wasConnected = false;
  private stopped = false;
  private readonly loads: Loads;
  private readonly singleFlight: SingleFlight;
  private readonly flights: Flights;
  private readonly waiters = new LoadWaiters();

  /** `FirstLevelClass` is given, and its code loaded, only if the settings ask for a first level. */
  constructor(
    store: CacheStore,
    readonly settings: CacheSettings,
    private readonly warnings: LimitedLog,
    FirstLevelClass: typeof FirstLevel | undefined,
  ) {
    const { counters, invalidatedTags, waiters } = this;
    const flights = new Flights();
    const stepOrder = new StepOrder(flights.ordinary);
    const { serializer = typedSerializer(), compression, maxValueBytes } = settings;
    const calls = new StoreCalls(store, settings, warnings);
    const envelopes = new Envelopes(serializer, compression, maxValueBytes, new UnkeptClasses(warnings));
    const nextToken = tokenSource();
    const firstLevel =
      settings.firstLevel && FirstLevelClass
        ? new FirstLevelClass(settings.firstLevel, (entry) => envelopes.copyOf(entry))
        : undefined;
    const resting = new RestingKeys(invalidatedTags);
    const local = new LocalState(firstLevel, flights, waiters, resting, invalidatedTags);

    const unconfirmed = new UnconfirmedDeletions(calls, stepOrder, counters, warnings, local);
    const invalidations = new Invalidations(calls, stepOrder, counters, unconfirmed, local, nextToken);
    const matchingDeletions = new MatchingDeletions(calls, stepOrder, counters, unconfirmed, local);
    const dueDeletions: DueDeletions = {
      ofKeys: (keys) => invalidations.invalidate(keys, { barrier: 0, failOpen: false }),
      ofPrefix: ({ prefix, batch }) => matchingDeletions.delete({ match: { prefix }, batch }, false),
    };
    const scheduled = new ScheduledDeletionsRunner(store, dueDeletions, warnings);

    const tagStamps = new TagStamps(calls, invalidatedTags);
    const leases = new LoadLeases(calls, tagStamps, invalidatedTags, nextToken);
    const loadScopes = new LoadScopes(calls.timeouts);
    const outdated = {
      forget: (key: string) => firstLevel?.delete(key),
      deleteLater: (key: string) => invalidations.deleteLater(key),
    };
    const loads = new Loads({
      calls,
      stepOrder,
      envelopes,
      tagStamps,
      scopes: loadScopes,
      counters,
      warnings,
      hasFirstLevel: firstLevel !== undefined,
      outdated,
    });

    const values = new StoredValues(calls, stepOrder, unconfirmed, envelopes, warnings);
    const refresher = new Refresher(leases, loads, resting, firstLevel, envelopes, warnings, settings.refreshContext);
    this.refresher = refresher;
    const otherLoads = new OtherLoads(leases, waiters, values, counters);
    const context = {
      flights,
      calls,
      stepOrder,
      unconfirmed,
      invalidatedTags,
      values,
      firstLevel,
      scopes: loadScopes,
      refresher,
      missShares: new MissShares(),
      leases,
      loads,
      otherLoads,
      resting,
      counters,
      warnings,
    };
    const singleFlight = new SingleFlight(context);

    this.calls = calls;
    this.stepOrder = stepOrder;
    this.envelopes = envelopes;
    this.tagStamps = tagStamps;
    this.firstLevel = firstLevel;
    this.local = local;
    this.unconfirmed = unconfirmed;
    this.invalidations = invalidations;
    this.matchingDeletions = matchingDeletions;
    this.mutations = new Mutations(calls, invalidations, warnings, nextToken);
    this.doubleDeletions = new DoubleDeletions(calls, counters, invalidations, matchingDeletions, scheduled, warnings);
    this.scheduled = scheduled;
    this.loadScopes = loadScopes;
    this.loads = loads;
    this.values = values;
    this.flights = flights;
    this.singleFlight = singleFlight;
    this.reads = firstLevel ? new FirstLevelReads(firstLevel, singleFlight, context) : singleFlight;
  }

  warn(line: string): void {
    this.warnings.warn(line);
  }

  /** Whether messages of other processes arrive. */
  get busConnected(): boolean {
    return this.singleFlight.busConnected;
  }

  /** @throws CacheConfigError for a store that cannot do what the settings ask for */
  start(): void {
    const { store } = this.calls;
    if (store.caveat) this.warnings.warn(store.caveat);
    if (this.firstLevel && this.settings.firstLevel?.bus === 'tracking') {
      new FirstLevelTracking(this.firstLevel, this.local, this.warnings).start(store);
    }
    store.listen(this);
  }

  async stop(): Promise<void> {
    this.scheduled.stop();
    await this.loads.settled();
    await this.unconfirmed.stop();
    this.calls.stop();
    this.flights.close();
    // From here on, no messages count: a store may still deliver one that was under way.
    this.stopped = true;
    this.onDisconnected();
    this.calls.store.close();
  }

  stats(): CacheStats {
    return {
      ...this.counters.all(),
      unconfirmedInvalidations: this.unconfirmed.size,
      breakerOpened: this.calls.breaker.opened,
      firstLevelSize: this.firstLevel?.size ?? 0,
      firstLevelEvictions: this.firstLevel?.evictions ?? 0,
      firstLevelFlushes: this.firstLevel?.flushes ?? 0,
    };
  }

  onInvalidated(key: string): void {
    this.local.forget(key);
  }

  onLoadEnded(key: string): void {
    this.waiters.wake(key);
  }

  onTagInvalidated(tag: string): void {
    this.local.forgetTag(tag);
  }

  onPrefixInvalidated(prefix: string): void {
    this.local.forgetMatching((key) => key.startsWith(prefix));
  }

  onDeletionScheduled(delay: number): void {
    this.scheduled.onScheduled(delay);
  }

  onDisconnected(): void {
    this.singleFlight.busConnected = false;
    this.invalidatedTags.addUnknown();
    this.firstLevel?.distrust('messages');
  }

  onConnected(): void {
    if (this.stopped) return;
    // Reads that started before may have missed a message.
    this.flights.detachMatching(() => true);
    this.firstLevel?.trust('messages');
    this.wasConnected = true;
    this.singleFlight.busConnected = true;
    this.scheduled.start();
  }
}

/** Makes tokens that are unique over all processes; short, because each load sends its token twice. */
function tokenSource(): () => string {
  const instance = randomBytes(12).toString('base64url');
  let tokens = 0;
  return () => {
    tokens += 1;
    return `${instance}:${tokens}`;
  };
}

/**
 * Drops from the first level each value that any client changes in the store.
 *
 * Also drops values that this process stores: their message looks like that of another writer, and one message may
 * stand for both.
 */
class FirstLevelTracking implements CacheTracker {
  constructor(
    private readonly firstLevel: FirstLevel,
    private readonly local: LocalState,
    private readonly warnings: Warnings,
  ) {}

  /** @throws CacheConfigError when the store cannot */
  start(store: CacheStore): void {
    if (store.track) return store.track(this);
    throw new CacheConfigError(
      `Option "cache.l1.bus" is "tracking", which takes a single Redis or Valkey, not a Cluster or another store (this one is "${store.name}"); give 'pubsub'`,
    );
  }

  onChanged(key: string): void {
    this.local.forgetValue(key);
  }

  onAllChanged(): void {
    this.local.forgetMatching(() => true);
  }

  onTracked(): void {
    this.firstLevel.trust('tracking');
  }

  onUntracked(why?: Error): void {
    this.firstLevel.distrust('tracking');
    if (why) {
      this.warnings.warn(
        `Option "cache.l1.bus" is "tracking", and Redis refuses that (${why.message}), so that the first level stays empty; give 'pubsub', or Redis 6 and a user who may use CLIENT ID, CLIENT TRACKING and the channel __redis__:invalidate`,
      );
    }
  }
}
