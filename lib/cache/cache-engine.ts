import { randomBytes } from 'node:crypto';
import type { LoggerService } from '@nestjs/common';
import type { CacheListener, CacheStore, TagVersion } from '../contracts/cache-store.js';
import type { CacheCore } from './cache-core.js';
import type { Loader } from './load/cache-loader.js';
import type { CacheSettings } from './options/cache-settings.js';
import { CacheCounters, type CacheStats } from './store/cache-stats.js';
import { WarningLimiter } from '../calls/warning-limiter.js';
import { Envelopes } from './values/envelope.js';
import type { EntrySettings } from './options/entry-settings.js';
import type { FirstLevel, Kept } from './first-level/first-level.js';
import { FirstLevelTracking } from './first-level/first-level-tracking.js';
import { Flights } from './read/flights.js';
import { InvalidatedTags } from './invalidation/invalidated-tags.js';
import { DoubleDeletions } from './invalidation/double-deletions.js';
import { Invalidations } from './invalidation/invalidations.js';
import { LocalState } from './invalidation/local-state.js';
import { MatchingDeletions } from './invalidation/matching-deletions.js';
import { Mutations } from './invalidation/mutations.js';
import { LoadWaiters } from './load/load-waiters.js';
import { Loads } from './load/running-loads.js';
import { bears, wantsRefresh } from './read/lookup.js';
import type { LoadRendezvous } from './load/load-rendezvous.js';
import { currentReport, type ReadReport } from './read/read-report.js';
import { Refresher } from './read/refresher.js';
import { Rests } from './load/resting-keys.js';
import { revived } from './read/revival.js';
import { ScheduledDeletionsRunner } from './invalidation/scheduled-deletions-runner.js';
import { SharedReads } from './read/shared-reads.js';
import { StoreCalls } from './store/store-calls.js';
import { StepOrder } from './invalidation/step-order.js';
import { typedSerializer } from './values/typed-serializer.js';
import { UnconfirmedDeletions } from './invalidation/unconfirmed-deletions.js';
import { UnkeptClasses } from './values/unkept-classes.js';

/** The cache over one store: reads through it, and what keeps them right. */
export class CacheEngine implements CacheCore, CacheListener {
  readonly calls: StoreCalls;
  readonly envelopes: Envelopes;
  readonly firstLevel: FirstLevel | undefined;
  readonly flights = new Flights();
  readonly invalidatedTags = new InvalidatedTags();
  readonly waiters = new LoadWaiters();
  readonly stepOrder = new StepOrder();
  readonly rests = new Rests();
  readonly counters = new CacheCounters();
  readonly warnings: WarningLimiter;
  readonly unkeptClasses: UnkeptClasses;
  readonly loads: Loads;
  readonly unconfirmed: UnconfirmedDeletions;
  readonly local: LocalState;
  readonly invalidations: Invalidations;
  readonly matchingDeletions: MatchingDeletions;
  readonly mutations: Mutations;
  readonly doubleDeletions: DoubleDeletions;
  readonly scheduled: ScheduledDeletionsRunner;
  hears = false;
  private readonly refresher: Refresher;
  private readonly sharedReads: SharedReads;
  /** What its tokens begin with: short, as each load sends one twice. */
  private readonly instance = randomBytes(12).toString('base64url');
  private tokens = 0;

  /** With the class of the first level if the settings have one: it is loaded only then. */
  constructor(
    store: CacheStore,
    readonly settings: CacheSettings,
    logger: Pick<LoggerService, 'warn' | 'error'>,
    FirstLevelClass: typeof FirstLevel | undefined,
  ) {
    this.warnings = new WarningLimiter(logger);
    this.unkeptClasses = new UnkeptClasses(logger);
    this.calls = new StoreCalls(store, settings, this.warnings);
    const { serializer = typedSerializer(), compression, maxValueBytes } = settings;
    this.envelopes = new Envelopes(serializer, compression, maxValueBytes);
    const { firstLevel } = settings;
    this.firstLevel =
      firstLevel && FirstLevelClass && new FirstLevelClass(firstLevel, (entry) => this.envelopes.copyOf(entry));
    this.loads = new Loads(this.calls.timeouts, this.counters);
    const { calls, counters, warnings, stepOrder } = this;
    const nextToken = () => this.nextToken();
    this.local = new LocalState(this.firstLevel, this.flights, this.waiters, this.rests, this.invalidatedTags);
    this.unconfirmed = new UnconfirmedDeletions(calls, stepOrder, counters, logger, this.local);
    const { unconfirmed, local } = this;
    this.invalidations = new Invalidations(calls, stepOrder, counters, unconfirmed, local, nextToken);
    this.matchingDeletions = new MatchingDeletions(calls, stepOrder, counters, unconfirmed, local);
    this.mutations = new Mutations(calls, this.invalidations, warnings, nextToken);
    const deleteNow = async (keys: readonly string[]) => {
      await this.invalidations.invalidate(keys, { barrier: 0, failOpen: false });
    };
    this.scheduled = new ScheduledDeletionsRunner(store, deleteNow, logger);
    this.doubleDeletions = new DoubleDeletions(calls, counters, this.invalidations, this.scheduled, warnings);
    this.refresher = new Refresher(this);
    this.sharedReads = new SharedReads(this, this.refresher);
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
    await this.unconfirmed.stop();
    this.calls.stop();
    // From here on no message is heard.
    this.onDisconnected();
    this.calls.store.close();
  }

  /** The value; the promise of one caller may be that of others, too. */
  fetch(key: string, loader: Loader<unknown>, settings: EntrySettings, rendezvous?: LoadRendezvous): Promise<unknown> {
    const report = currentReport();
    if (this.firstLevel && !settings.strong && !settings.forceFresh) {
      const kept = this.firstLevel.get(key);
      if (kept && bears(kept.entry, settings.tags)) {
        if (!settings.revive) {
          return Promise.resolve(this.kept(key, loader, settings, kept, kept.value, report, rendezvous));
        }
        return this.fetchRevived(key, loader, settings, kept, report, rendezvous);
      }
    }
    return this.sharedReads.read(key, loader, settings, report, rendezvous);
  }

  private async fetchRevived(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    kept: Kept,
    report: ReadReport | undefined,
    rendezvous: LoadRendezvous | undefined,
  ): Promise<unknown> {
    const { revive } = settings;
    const made = revive && (await revived(this, key, revive, kept.value));
    if (made) return this.kept(key, loader, settings, kept, made.value, report, rendezvous);
    return this.sharedReads.read(key, loader, settings, report, rendezvous);
  }

  nextToken(): string {
    this.tokens += 1;
    return `${this.instance}:${this.tokens}`;
  }

  beginTags(key: string, tags: readonly string[], memory: number): Promise<readonly TagVersion[]> {
    return this.calls.run('read of the tags', key, () => this.calls.store.beginTags(tags, memory));
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
    this.hears = false;
    this.invalidatedTags.addUnknown();
    this.firstLevel?.distrust('messages');
  }

  onConnected(): void {
    // Whatever began before may have missed a message.
    this.flights.detachMatching(() => true);
    this.firstLevel?.trust('messages');
    this.hears = true;
    this.scheduled.start();
  }

  private kept(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    { entry, value }: Kept,
    answer: unknown,
    report: ReadReport | undefined,
    rendezvous: LoadRendezvous | undefined,
  ): unknown {
    this.counters.firstLevelHits += 1;
    report?.add({ outcome: 'hit', remaining: entry.expiresAt - Date.now() });
    if (wantsRefresh(entry, settings)) this.refresher.refresh(key, loader, settings, { entry, value }, rendezvous);
    return answer;
  }
}
