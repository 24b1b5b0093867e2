import { publishHit } from '../store/cache-events.js';
import { cacheChannels } from '../../events/cache-channels.js';
import type { FirstLevel, Kept } from '../first-level/first-level.js';
import type { Loader } from '../load/cache-loader.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { BatchParticipant } from './batch-participant.js';
import { currentReport } from './read-report.js';
import type { Refresher } from './refresher.js';
import type { SingleFlight } from './single-flight.js';
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
