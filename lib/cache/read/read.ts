import { AsyncResource } from 'node:async_hooks';
import type { CacheCore } from '../cache-core.js';
import { CacheBackendError, CacheTimeoutError } from '../../errors/cache-errors.js';
import type { Loader } from '../load/cache-loader.js';
import type { TagState } from '../../contracts/cache-store.js';
import type { Entry, TagStamp } from '../values/envelope.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { Kept } from '../first-level/first-level.js';
import type { Flight } from './flights.js';
import { askForLease } from '../load/lease-taking.js';
import { LeasedLoad, type LoadResult } from '../load/leased-load.js';
import type { LoadRendezvous } from '../load/load-rendezvous.js';
import type { Loaded } from '../load/running-loads.js';
import { revived, type Revived } from './revival.js';
import {
  bears,
  beginningOf,
  decode,
  isFresh,
  isServableStale,
  judgedBy,
  judgedByTags,
  wantsRefresh,
  type Found,
} from './lookup.js';
import { endOfOtherLoad, type OtherLoadEnd } from './other-load.js';

/** What every stored value begins with. */
const WHATEVER = Buffer.alloc(0);

/** One read of one key, which others share: looks it up, and loads it where that finds nothing. */
export class Read {
  private readonly generation: number;
  /** Where the loader runs: an answer of the store comes in the context of another read that was sent with this one. */
  private readonly caller = new AsyncResource('CacheRead');
  /** The flight was answered before the load has ended. */
  private answeredEarly = false;

  constructor(
    private readonly core: CacheCore,
    private readonly flight: Flight,
    private readonly loader: Loader<unknown>,
    private readonly settings: EntrySettings,
    private readonly refresh: (found: Found) => void,
    private readonly rendezvous?: LoadRendezvous,
  ) {
    this.generation = core.firstLevel?.generation ?? 0;
  }

  private get key(): string {
    return this.flight.key;
  }

  start(): void {
    const changes = this.core.stepOrder.afterKey(this.key);
    if (changes) void changes.then(() => this.lookUp());
    else this.lookUp();
  }

  private lookUp(): void {
    const { core, key, settings } = this;
    if (core.loads.scopes.wouldWaitForItself(key)) return this.loadUnstored();
    if (core.unconfirmed.size > 0 && core.unconfirmed.coversKey(key)) return this.doWithoutDoubted();
    if (settings.forceFresh) return this.fill(WHATEVER, undefined);
    if (settings.tags.length > 0) return this.follow(this.lookUpTagged());
    const { calls } = core;
    calls.send('read', key, () => calls.store.read(key), this.onData, this.onFailure);
  }

  private readonly onData = (data: Buffer | null): void => {
    const found = decode(this.core, this.key, data);
    if (!found) return this.fill(data ?? undefined, undefined);
    if (found.entry?.tags) return this.follow(this.checkTags(found));
    this.judge(found);
  };

  private readonly onFailure = (error: CacheBackendError): void => {
    const { core, key, settings } = this;
    const spare = settings.strong ? undefined : core.firstLevel?.spare(key);
    if (!spare || !bears(spare.entry, settings.tags)) return this.doWithoutStore(error, undefined);
    core.counters.redisErrors += 1;
    this.follow(this.landSpare(spare, error));
  };

  /** What is in memory while the store is away. */
  private async landSpare({ entry, value }: Kept, error: CacheBackendError): Promise<void> {
    const { core, key, settings, flight } = this;
    const made = settings.revive ? await revived(core, key, settings.revive, value) : { value };
    if (!made) return this.doWithoutStore(error, undefined);
    core.counters.firstLevelHits += 1;
    flight.outcome = 'hit';
    flight.freshUntil = entry.expiresAt;
    flight.land(made.value);
  }

  private follow(steps: Promise<void>): void {
    steps.catch((error: unknown) => this.flight.fail(error));
  }

  /** Serves it, fresh or stale, or loads. */
  private judge(found: Found): void {
    const { revive } = this.settings;
    if (!revive) return this.answer(found);
    const made = revived(this.core, this.key, revive, found.value);
    const judged = (answer: Revived) => {
      if (answer) this.answer({ ...found, revived: answer });
      else this.fill(found.data, undefined);
    };
    if (made instanceof Promise) return this.follow(made.then(judged));
    judged(made);
  }

  private answer(found: Found): void {
    const { core, settings } = this;
    if (isFresh(found)) {
      core.counters.secondLevelHits += 1;
      if (wantsRefresh(found.entry, settings)) this.caller.runInAsyncScope(this.refresh, undefined, found);
      return this.landFound(found);
    }
    const stale = isServableStale(found, settings) ? found : undefined;
    if (!stale) return this.fill(found.data, undefined);
    const rests = settings.staleIfError && core.rests.has(this.key);
    if (settings.softTimeout > 0 && !rests) return this.fill(found.data, stale);
    if (!rests) this.caller.runInAsyncScope(this.refresh, undefined, stale);
    this.landStale(stale);
  }

  /** Asks for the value and for its tags in one round trip. */
  private async lookUpTagged(): Promise<void> {
    const { core, key, settings } = this;
    const { calls } = core;
    let data: Buffer | null;
    let states: readonly TagState[];
    const changes = core.stepOrder.afterTags(settings.tags);
    if (changes) await changes;
    try {
      [data, states] = await Promise.all([
        calls.run('read', key, () => calls.store.read(key)),
        calls.run('read of the tags', key, () => calls.store.readTags(settings.tags)),
      ]);
    } catch (error) {
      return this.onFailure(error as CacheBackendError);
    }
    const found = decode(core, key, data);
    const stamp = found?.entry?.tags;
    const judged = found && stamp && judgedBy(settings.tags, states, found);
    if (!judged) return this.fill(data ?? undefined, undefined);
    if (Object.keys(stamp).length > settings.tags.length) return this.checkTags(found);
    if (core.unconfirmed.coversTags(stamp)) return this.doWithoutDoubted(stamp);
    this.judge(judged);
  }

  private async checkTags(found: Found): Promise<void> {
    const { core, key, settings } = this;
    if (core.unconfirmed.coversTags(found.entry?.tags)) return this.doWithoutDoubted(found.entry?.tags);
    let judged: Found | undefined;
    try {
      judged = await judgedByTags(core, key, found, settings.tags);
    } catch (error) {
      return this.onFailure(error as CacheBackendError);
    }
    if (judged) this.judge(judged);
    else this.fill(found.data, undefined);
  }

  /**
   * Takes the lease and loads, or waits for whoever has it. `present`: what is in the store and not to be served.
   * `stale`: what is to be served when that takes longer than `softTimeout`.
   */
  private fill(present: Buffer | undefined, stale: Found | undefined): void {
    this.core.counters.misses += 1;
    const { bloom } = this.settings;
    if (!bloom) return this.askForLease(present, stale);
    const mayBe = bloom.filter.mayHave(bloom.id).then((may) => {
      if (may) return this.askForLease(present, stale);
      this.core.counters.absentByFilter += 1;
      this.flight.land(null);
    });
    this.follow(mayBe);
  }

  private askForLease(present: Buffer | undefined, stale: Found | undefined): void {
    const { core, key, settings } = this;
    askForLease(
      core,
      key,
      settings,
      { seen: present && beginningOf(present), waits: false },
      (answer) => {
        if (answer instanceof LeasedLoad) this.load(answer, stale);
        else if (answer.status === 'barrier') this.loadUnstored(stale);
        else this.follow(this.awaitOther(present, stale));
      },
      (error) => this.doWithoutStore(error, stale),
    );
  }

  /** Somebody else loads, or has loaded. */
  private async awaitOther(present: Buffer | undefined, stale: Found | undefined): Promise<void> {
    const { core, key, settings, rendezvous } = this;
    const patience = stale ? Math.min(settings.wait, settings.softTimeout) : settings.wait;
    let end: OtherLoadEnd;
    try {
      end = await endOfOtherLoad(core, key, settings, present, patience, rendezvous);
    } catch (error) {
      if (!(error instanceof CacheBackendError)) throw error;
      return this.doWithoutStore(error, stale);
    }
    if (end instanceof LeasedLoad) return this.load(end, stale);
    if (end === 'barrier') return this.loadUnstored(stale);
    if (end === 'late') return this.giveUpWaiting(stale);
    if (end !== 'unreadable') return this.landFound(end);
    core.warnings.warn(`What is under "${key}" is no value of the cache, or not yet on the replica that is read from`);
    this.loadUnstored(stale);
  }

  private load(load: LeasedLoad, stale: Found | undefined): void {
    const { softTimeout } = this.settings;
    const soft = stale && softTimeout > 0 ? setTimeout(() => this.landEarly(stale), softTimeout) : undefined;
    const done = (result: LoadResult) => {
      clearTimeout(soft);
      this.bear(load.named);
      this.landLoaded(result);
    };
    const failed = (error: unknown) => {
      clearTimeout(soft);
      this.landFailed(error, stale);
    };
    this.caller.runInAsyncScope(() => load.run(this.loader, stale?.value, done, failed));
  }

  /** Where nothing may be stored: a write is under way, or the store is away. */
  private loadUnstored(stale?: Found): void {
    const { core, key, loader, settings } = this;
    core.counters.unstoredLoads += 1;
    const done = ({ value, tags }: Loaded) => {
      this.bear(tags);
      this.flight.land(value);
    };
    const failed = (error: unknown) => this.landFailed(error, stale);
    this.caller.runInAsyncScope(() => core.loads.run(key, loader, settings.loaderTimeout, stale?.value, done, failed));
  }

  /** What is there was deleted here, and Redis has not confirmed that. */
  private doWithoutDoubted(tags?: TagStamp): void {
    const { core, key, settings } = this;
    const doubt = settings.failOpen ? undefined : core.unconfirmed.doubtAbout(key, tags);
    if (doubt) this.flight.fail(doubt);
    else this.loadUnstored();
  }

  private doWithoutStore(error: CacheBackendError, stale: Found | undefined): void {
    this.core.counters.redisErrors += 1;
    if (this.settings.failOpen) this.loadUnstored(stale);
    else this.flight.fail(error);
  }

  private giveUpWaiting(stale: Found | undefined): void {
    const { key, settings } = this;
    if (stale) return this.landStale(stale);
    if (settings.onTimeout !== 'throw') return this.loadUnstored();
    const message = `"${key}" was still being loaded by another call after lock.wait (${settings.wait} ms)`;
    throw new CacheTimeoutError(message, [key]);
  }

  private landFound(found: Found): void {
    const { entry } = found;
    this.flight.outcome = 'hit';
    this.flight.freshUntil = entry?.expiresAt;
    if (entry && this.core.firstLevel) this.keep({ ...entry, payload: Buffer.from(entry.payload) });
    this.landStored(found);
  }

  private landStale(stale: Found): void {
    this.core.counters.staleHits += 1;
    this.flight.outcome = 'stale';
    this.landStored(stale);
  }

  private landStored({ entry, value, revived: made }: Found): void {
    if (entry?.tags) this.flight.tags = Object.keys(entry.tags);
    this.flight.land(made ? made.value : value);
  }

  /** What is loaded has these tags, too. */
  private bear(named: readonly string[]): void {
    if (named.length === 0) return;
    const { tags, tagPrefix } = this.settings;
    this.flight.tags = [...tags, ...named.map((tag) => tagPrefix + tag)];
  }

  private landEarly(stale: Found): void {
    this.answeredEarly = true;
    this.landStale(stale);
  }

  private landLoaded({ value, entry, freshUntil }: LoadResult): void {
    this.flight.freshUntil = freshUntil;
    // What an ordinary read has found by now is older.
    if (this.settings.forceFresh) this.core.flights.outdate(this.key, false);
    if (entry) this.keep(entry);
    this.flight.land(value);
  }

  private landFailed(error: unknown, stale: Found | undefined): void {
    if (stale) this.core.rests.begin(this.key, this.settings.restAfterError);
    if (this.answeredEarly) {
      return this.core.warnings.warn(`The loader of "${this.key}" failed in the background: ${String(error)}`);
    }
    if (stale && this.settings.staleIfError) return this.landStale(stale);
    this.flight.fail(error);
  }

  /** In the first level, unless it may be older than a message that was heard, or missed, since this read began. */
  private keep(entry: Entry): void {
    const { firstLevel, invalidatedTags } = this.core;
    const { outdated, begun } = this.flight;
    if (!firstLevel || outdated || this.answeredEarly || firstLevel.generation !== this.generation) return;
    if (entry.tags && invalidatedTags.anySince(Object.keys(entry.tags), begun)) return;
    firstLevel.keep(this.key, entry);
  }
}
