import { cacheChannels } from '../../events/cache-channels.js';
import type { Warnings } from '../../errors/limited-log.js';
import type { FirstLevel } from '../first-level/first-level.js';
import type { Loader } from '../load/cache-loader.js';
import { LoadLease } from '../load/load-lease.js';
import type { LoadLeases } from '../load/load-leases.js';
import type { Loads } from '../load/loads.js';
import type { RestingKeys } from '../load/resting-keys.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { Envelopes } from '../values/envelope.js';
import type { BatchParticipant } from './batch-participant.js';
import { beginningOf, type FoundValue } from './stored-values.js';

/** Loads values in the background while they are still served: one load at a time for each key, over all processes. */
export class Refresher {
  private readonly running = new Set<string>();

  constructor(
    private readonly leases: LoadLeases,
    private readonly loads: Loads,
    private readonly resting: RestingKeys,
    private readonly firstLevel: FirstLevel | undefined,
    private readonly envelopes: Envelopes,
    private readonly warnings: Warnings,
  ) {}

  /** Whether a load of the key has failed within `restAfterError`. */
  isResting(key: string): boolean {
    return this.resting.has(key);
  }

  refresh(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    current: FoundValue,
    participant?: BatchParticipant,
  ): void {
    if (this.running.has(key) || this.resting.has(key)) return;
    this.running.add(key);
    participant?.refreshes();
    this.load(key, loader, settings, current).then(
      () => {
        this.running.delete(key);
        participant?.refreshed();
      },
      (error: unknown) => {
        participant?.refreshed();
        if (cacheChannels.refreshFailed.hasSubscribers) {
          cacheChannels.refreshFailed.publish({ key, template: settings.template, error });
        }
        this.warnings.warn(`The refresh of "${key}" failed: ${String(error)}`, 'refresh');
        this.running.delete(key);
        this.resting.begin(key, settings.restAfterError);
      },
    );
  }

  private async load(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    { data, entry, value }: FoundValue,
  ): Promise<void> {
    const replaces = data ? beginningOf(data) : entry && this.envelopes.headOf(entry);
    const outcome = await this.leases.take(key, settings, { replaces, waits: false });
    if (outcome instanceof LoadLease) {
      await new Promise((resolve, reject) => {
        this.loads.underLease(outcome, loader, settings, value, resolve, reject);
      });
    } else if (outcome.status !== 'hit') return;
    this.firstLevel?.delete(key);
  }
}
