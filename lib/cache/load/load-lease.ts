import type { TagVersion } from '../../contracts/cache-store.js';
import type { EntrySettings } from '../options/entry-settings.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { Expiring, Timeout } from '../../timing/timeouts.js';

/** What the store says of a granted lease, and what was known when it did. */
interface Granted {
  /** When the lease began, in µs by the clock of the store. */
  readonly at: number;
  /** The versions of the tags that the options name. */
  readonly tagVersions: readonly TagVersion[];
  /** What `InvalidatedTags` had counted. */
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

  /** Renews the lease every third of it until `stopRenewal`, unless `lock.renew` is off. */
  startRenewal(): void {
    if (!this.renewed || !this.settings.renew) return;
    this.renewal = this.calls.timeouts.start(this.settings.lease / 3, this);
  }

  stopRenewal(): void {
    this.renewed = false;
    this.renewal?.leave();
  }

  /** A renewal is due. */
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

/** Gives a lease back that may have been granted. Where that fails, the lease ends by itself. */
export function releaseLease(calls: StoreCalls, key: string, token: string): void {
  calls.send('release of the lease', key, () => calls.store.release({ key, token }), ignore, ignore);
}

function ignore(): void {}
