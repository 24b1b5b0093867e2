import type { CacheCore } from '../cache-core.js';
import type { Loader } from '../load/cache-loader.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { takeLease } from '../load/lease-taking.js';
import { LeasedLoad } from '../load/leased-load.js';
import type { LoadRendezvous } from '../load/load-rendezvous.js';
import { beginningOf, type Found } from './lookup.js';

/** Loads anew what is still served, in the background: one load at a time for each key over all processes. */
export class Refresher {
  private readonly underWay = new Set<string>();

  constructor(private readonly core: CacheCore) {}

  refresh(
    key: string,
    loader: Loader<unknown>,
    settings: EntrySettings,
    current: Found,
    rendezvous?: LoadRendezvous,
  ): void {
    if (this.underWay.has(key) || this.core.rests.has(key)) return;
    this.underWay.add(key);
    rendezvous?.refreshes();
    this.load(key, loader, settings, current).then(
      () => {
        this.underWay.delete(key);
        rendezvous?.refreshed();
      },
      (error: unknown) => {
        rendezvous?.refreshed();
        this.core.warnings.warn(`The refresh of "${key}" failed: ${String(error)}`);
        this.underWay.delete(key);
        this.core.rests.begin(key, settings.restAfterError);
      },
    );
  }

  private async load(key: string, loader: Loader<unknown>, settings: EntrySettings, current: Found): Promise<void> {
    const { core } = this;
    const { entry, data } = current;
    const seen = data ? beginningOf(data) : entry && core.envelopes.headOf(entry);
    const load = await takeLease(core, key, settings, { seen, waits: false });
    if (load instanceof LeasedLoad) {
      await new Promise((resolve, reject) => {
        load.run(loader, current.value, resolve, reject);
      });
    } else if (load.status !== 'hit') return;
    core.firstLevel?.delete(key);
  }
}
