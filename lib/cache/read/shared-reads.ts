import { AsyncResource } from 'node:async_hooks';
import type { CacheCore } from '../cache-core.js';
import type { Loader } from '../load/cache-loader.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { Flight } from './flights.js';
import type { LoadRendezvous } from '../load/load-rendezvous.js';
import type { Found } from './lookup.js';
import { Read } from './read.js';
import type { ReadReport } from './read-report.js';
import type { Refresher } from './refresher.js';

/** Reads of the store, which callers of one process share. */
export class SharedReads {
  constructor(
    private readonly core: CacheCore,
    private readonly refresher: Refresher,
  ) {}

  /** The answer of the read under way, of the next one, or of one that this begins. */
  read(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    report: ReadReport | undefined,
    rendezvous: LoadRendezvous | undefined,
  ): Promise<unknown> {
    const current = this.joinable(key, settings);
    if (!current) return alone(this.beginShared(key, loader, settings, rendezvous), report);
    if (this.core.loads.scopes.wouldWaitForItself(key)) {
      const flight = this.core.flights.alone(key, this.core.invalidatedTags.count, settings.tags);
      return alone(this.begin(flight, loader, settings, rendezvous), report);
    }
    this.core.counters.sharedReads += 1;
    if (!settings.strong && this.core.hears) {
      if (current.begun === this.core.invalidatedTags.count) {
        rendezvous?.decided();
        this.core.loads.scopes.wait(key, current.promise);
        return reported(current, current.promise, report);
      }
      const late = this.joinLate(current, loader, settings, report, rendezvous);
      this.core.loads.scopes.wait(key, late);
      return late;
    }
    // What the one under way finds may be older than an invalidation that ended before this call began.
    const caller = new AsyncResource('CacheRead');
    const begin = (strong: boolean) => {
      rendezvous?.resumes();
      return this.beginShared(key, loader, { ...settings, strong }, rendezvous);
    };
    rendezvous?.waits();
    const following = current.next((strong) => caller.runInAsyncScope(begin, undefined, strong), settings.strong);
    const answer = following.then((flight) => reported(flight, flight.promise, report));
    this.core.loads.scopes.wait(key, answer);
    return answer;
  }

  /** The read to join, unless the options name a tag that was invalidated since it began. */
  private joinable(key: string, { forceFresh, tags }: EntrySettings): Flight | undefined {
    const { flights, invalidatedTags } = this.core;
    const current = flights.get(key, forceFresh);
    if (!current || current.begun === invalidatedTags.count) return current;
    const outdated = [current.tags, tags].some((named) => invalidatedTags.anySince(named, current.begun));
    if (!outdated) return current;
    current.detach();
    return undefined;
  }

  /**
   * Since the current read began, tags were invalidated, and which ones it bears is known when it lands: its answer
   * counts unless it bears one of those, or is an error, which tells nothing of tags. Then the next read does, which
   * begins after this call.
   */
  private async joinLate(
    current: Flight,
    loader: Loader<unknown>,
    settings: EntrySettings,
    report: ReadReport | undefined,
    rendezvous: LoadRendezvous | undefined,
  ): Promise<unknown> {
    rendezvous?.waits();
    const outdated = await current.promise.then(
      () => this.core.invalidatedTags.anySince(current.tags, current.begun),
      () => true,
    );
    if (!outdated) return reported(current, current.promise, report);
    const { key } = current;
    const next = this.core.flights.get(key, settings.forceFresh);
    if (next) return reported(next, next.promise, report);
    rendezvous?.resumes();
    return alone(this.beginShared(key, loader, settings, rendezvous), report);
  }

  /** One that others join. */
  private beginShared(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    rendezvous?: LoadRendezvous,
  ): Flight {
    const flight = this.core.flights.start(key, settings.forceFresh, this.core.invalidatedTags.count, settings.tags);
    return this.begin(flight, loader, settings, rendezvous);
  }

  private begin(flight: Flight, loader: Loader<unknown>, settings: EntrySettings, rendezvous?: LoadRendezvous): Flight {
    const { key } = flight;
    const refresh = (found: Found) => this.refresher.refresh(key, loader, settings, found, rendezvous);
    new Read(this.core, flight, loader, settings, refresh, rendezvous).start();
    return flight;
  }
}

function alone(flight: Flight, report: ReadReport | undefined): Promise<unknown> {
  return reported(flight, flight.promise, report);
}

/** The answer, which is told to the report of this caller. */
function reported(flight: Flight, answer: Promise<unknown>, report: ReadReport | undefined): Promise<unknown> {
  if (!report) return answer;
  return answer.then((value) => {
    const { outcome, freshUntil } = flight;
    report.add(freshUntil === undefined ? { outcome } : { outcome, remaining: freshUntil - Date.now() });
    return value;
  });
}
