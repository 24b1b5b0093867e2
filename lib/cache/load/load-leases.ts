import type { LeaseAnswer, StoredData, TagVersion } from '../../contracts/cache-store.js';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import type { InvalidatedTags } from '../invalidation/invalidated-tags.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { tagMemory } from '../options/time-to-live.js';
import type { StoreCalls } from '../store/store-calls.js';
import { LoadLease, releaseLease } from './load-lease.js';
import type { TagStamps } from './tag-stamps.js';

/** A granted lease, or the reason why there is none. */
export type LeaseOutcome = LoadLease | Exclude<LeaseAnswer, { status: 'leased' }>;

interface LeaseWish {
  /** The beginning of the stored value that the load replaces, if there is one. */
  readonly replaces: StoredData | undefined;
  /** Whether this process waits if another one has the lease. */
  readonly waits: boolean;
}

/** Asks the store for load leases. */
export class LoadLeases {
  constructor(
    private readonly calls: StoreCalls,
    private readonly tagStamps: TagStamps,
    private readonly invalidatedTags: InvalidatedTags,
    private readonly nextToken: () => string,
  ) {}

  /** Asks for a lease and for the versions of the tags; both arrive before the loader starts. */
  request(
    key: string,
    settings: EntrySettings,
    wish: LeaseWish,
    answered: (outcome: LeaseOutcome) => void,
    failed: (error: CacheBackendError) => void,
  ): void {
    if (settings.tags.length > 0) return void this.take(key, settings, wish).then(answered, failed);
    const token = this.nextToken();
    const send = (answer: LeaseAnswer) => answered(this.outcome(key, settings, token, answer, []));
    this.send(key, settings, wish, token, send, failed);
  }

  /** As `request`. @throws CacheBackendError when Redis fails */
  async take(key: string, settings: EntrySettings, wish: LeaseWish): Promise<LeaseOutcome> {
    const token = this.nextToken();
    const lease = new Promise<LeaseAnswer>((resolve, reject) => {
      this.send(key, settings, wish, token, resolve, reject);
    });
    const { tags, ttl, staleTtl } = settings;
    try {
      const [answer, versions] = await Promise.all([
        lease,
        tags.length === 0 ? [] : this.tagStamps.begin(key, tags, tagMemory(ttl + staleTtl)),
      ]);
      return this.outcome(key, settings, token, answer, versions);
    } catch (error) {
      releaseLease(this.calls, key, token);
      throw error;
    }
  }

  private send(
    key: string,
    { lease }: EntrySettings,
    { replaces, waits }: LeaseWish,
    token: string,
    answered: (answer: LeaseAnswer) => void,
    failed: (error: CacheBackendError) => void,
  ): void {
    const { calls } = this;
    const request = { key, token, lease, refresh: replaces !== undefined, seen: replaces, waits };
    // The caller went on without this lease; an invalidation would not stop what it loads, so the lease is given back.
    const late = ({ status }: LeaseAnswer) => {
      if (status === 'leased') releaseLease(calls, key, token);
    };
    calls.send('lease', key, () => calls.store.lease(request), answered, failed, late);
  }

  private outcome(
    key: string,
    settings: EntrySettings,
    token: string,
    answer: LeaseAnswer,
    tagVersions: readonly TagVersion[],
  ): LeaseOutcome {
    if (answer.status !== 'leased') return answer;
    const granted = { at: answer.at, tagVersions, invalidatedTags: this.invalidatedTags.count };
    return new LoadLease(this.calls, key, token, granted, settings);
  }
}
