import type { TagVersion } from '../../contracts/cache-store.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { Expiring, Timeout } from '../../timing/timeouts.js';

/** The store's answer for a granted lease, and what was known at that time. */
interface Granted {
  /** When the lease began, in µs by the clock of the store. */
  readonly at: number;
  /** The versions of the tags that the options name. */
  readonly tagVersions: readonly TagVersion[];
  /** The count of `InvalidatedTags`. */
  readonly invalidatedTags: number;
}

/**
 * A granted load lease: the right to store one value under the key, until an invalidation, a write or time takes it
 * away.
 *
 * After Nishtala et al., "Scaling Memcache at Facebook" (2013), §3.2.1, with a token for each load.
 */
export class LoadLease implements Expiring {
  private renewal: Timeout | undefined;
  private renewed = true;

  constructor(
    private readonly calls: StoreCalls,
    readonly key: string,
    readonly token: string,
    readonly granted: Granted,
    private readonly settings: Pick<EntrySettings, 'lease' | 'renew'>,
  ) {}

  /** Renews the lease after every third of it until `stopRenewal`, unless `lock.renew` is off. */
  startRenewal(): void {
    if (!this.renewed || !this.settings.renew) return;
    this.renewal = this.calls.timeouts.start(this.settings.lease / 3, this);
  }

  stopRenewal(): void {
    this.renewed = false;
    this.renewal?.leave();
  }

  /** Renews the lease; called when a renewal is due. */
  expire(): void {
    if (!this.renewed) return;
    const { calls, key, token } = this;
    const request = { key, token, lease: this.settings.lease };
    calls.send(
      'renewal of the lease',
      key,
      () => calls.store.renew(request),
      (renewed) => {
        if (renewed) this.startRenewal();
      },
      () => this.startRenewal(),
    );
  }

  /** Gives the lease back, so that other callers load at once. */
  release(): void {
    releaseLease(this.calls, this.key, this.token);
  }
}

/** Gives back a lease that may have been granted. If that fails, the lease ends by itself. */
export function releaseLease(calls: StoreCalls, key: string, token: string): void {
  calls.send('release of the lease', key, () => calls.store.release({ key, token }), ignore, ignore);
}

function ignore(): void {}
