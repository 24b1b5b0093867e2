import type { TagVersion, LeaseAnswer, StoredData } from '../../contracts/cache-store.js';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import type { Expiring, Timeout } from '../../timing/clock.js';
import type { InvalidatedTags } from '../invalidation/local-state.js';
import { type EntrySettings, tagMemory } from '../options/entry-settings.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { TagStamps } from './tag-stamps.js';

/** A granted lease, or the reason why there is none. */
export type LeaseOutcome = LoadLease | Exclude<LeaseAnswer, { status: 'leased' }>;

/** A value that was read in the place of a lease, and the versions of the tags that the options name. */
export interface ReadInstead {
  readonly data: Buffer;
  readonly tagVersions: readonly TagVersion[];
}

interface LeaseWish {
  /** The beginning of the stored value that the load replaces, if there is one. */
  readonly replaces: StoredData | undefined;
  /** Whether this process waits if another one has the lease. */
  readonly waits: boolean;
}

/** Asks the store for load leases: the first thing that a miss does (the whole way stands in `read/read.ts`). */
export class LoadLeases {
  /** Whether the store can read the value, or grant the lease, in one step. */
  readonly canRead: boolean;

  constructor(
    private readonly calls: StoreCalls,
    private readonly tagStamps: TagStamps,
    private readonly invalidatedTags: InvalidatedTags,
    private readonly nextToken: () => string,
  ) {
    this.canRead = calls.store.readOrLease !== undefined;
  }

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
    const { resends } = this.calls.store;
    const send = (answer: LeaseAnswer) => answered(this.outcome(key, settings, token, answer, [], resends));
    this.send(key, settings, wish, token, send, failed);
  }

  /** Reads the value, and asks for a lease where there is none; the versions of the tags arrive with either. */
  requestOrRead(
    key: string,
    settings: EntrySettings,
    answered: (outcome: ReadInstead | LeaseOutcome) => void,
    failed: (error: CacheBackendError) => void,
  ): void {
    const { calls, tagStamps } = this;
    const { lease, tags, ttl, staleTtl } = settings;
    const token = this.nextToken();
    const { resends } = calls.store;
    const request = { key, token, lease, waits: false };
    const call = () => calls.store.readOrLease?.(request) ?? Promise.reject(new Error('The store cannot'));
    const late = (answer: Buffer | LeaseAnswer) => {
      if (!Buffer.isBuffer(answer)) this.giveBack(key, token, answer);
    };
    const read = (answer: Buffer | LeaseAnswer, tagVersions: readonly TagVersion[] = []) => {
      if (Buffer.isBuffer(answer)) answered({ data: answer, tagVersions });
      else answered(this.outcome(key, settings, token, answer, tagVersions, resends));
    };
    const sent = !calls.breaker.isOpen;
    const unanswered = (error: unknown) => {
      if (sent) this.abandon(key, token);
      failed(error as CacheBackendError);
    };
    if (tags.length === 0) return calls.send('read', key, call, read, unanswered, late);
    Promise.all([calls.run('read', key, call, late), tagStamps.begin(key, tags, tagMemory(ttl + staleTtl))]).then(
      ([answer, tagVersions]) => read(answer, tagVersions),
      unanswered,
    );
  }

  /** As `request`. @throws CacheBackendError when Redis fails */
  async take(key: string, settings: EntrySettings, wish: LeaseWish): Promise<LeaseOutcome> {
    const token = this.nextToken();
    const { resends } = this.calls.store;
    const lease = new Promise<LeaseAnswer>((resolve, reject) => {
      this.send(key, settings, wish, token, resolve, reject);
    });
    const { tags, ttl, staleTtl } = settings;
    if (tags.length === 0) return this.outcome(key, settings, token, await lease, [], resends);
    const sent = !this.calls.breaker.isOpen;
    const versions = this.tagStamps.begin(key, tags, tagMemory(ttl + staleTtl));
    if (sent) versions.catch(() => this.abandon(key, token));
    return this.outcome(key, settings, token, ...(await Promise.all([lease, versions])), resends);
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
    const late = (answer: LeaseAnswer) => this.giveBack(key, token, answer);
    const sent = !calls.breaker.isOpen;
    const unanswered = (error: CacheBackendError) => {
      if (sent) this.abandon(key, token);
      failed(error);
    };
    calls.send('lease', key, () => calls.store.lease(request), answered, unanswered, late);
  }

  /** Its request has failed, and the load goes on without: the store may have granted it, or may grant it later. */
  private abandon(key: string, token: string): void {
    releaseLease(this.calls, key, token);
    new LateRelease(this.calls, key, token).start();
  }

  /** Ends a lease that came too late: its caller went on without it, and an invalidation would not stop that load. */
  private giveBack(key: string, token: string, { status }: LeaseAnswer): void {
    if (status === 'leased') releaseLease(this.calls, key, token);
  }

  private outcome(
    key: string,
    settings: EntrySettings,
    token: string,
    answer: LeaseAnswer,
    tagVersions: readonly TagVersion[],
    resends: number | undefined,
  ): LeaseOutcome {
    if (answer.status !== 'leased') return answer;
    // An earlier copy of the request may be granted the lease once more, after an invalidation, and an earlier copy of
    // the commit would then store what this load has read before: it stores nothing.
    if (this.calls.store.resends !== resends) {
      releaseLease(this.calls, key, token);
      return { status: 'barrier' };
    }
    const granted = {
      at: answer.at,
      knownAt: performance.now(),
      tagVersions,
      invalidatedTags: this.invalidatedTags.count,
    };
    return new LoadLease(this.calls, key, token, granted, settings);
  }
}

/**
 * A granted load lease: the right to store one value under the key, until an invalidation, a write or time takes it
 * away.
 *
 * After Nishtala et al., "Scaling Memcache at Facebook" (2013), §3.2.1, with a token for each load.
 */
export class LoadLease implements Expiring {
  private renewal: Timeout | undefined = undefined;
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

  /**
   * Gives the lease back and deletes the stored value, which the load has found out of date: unless the lease was taken
   * away, because then the value is gone, or is newer. Calls `done` once that is done, or `failed`.
   */
  releaseOutdated(done: () => void, failed: () => void): void {
    const { calls, key, token } = this;
    calls.send('deletion', key, () => calls.store.release({ key, token, outdated: true }), done, failed);
  }
}

/** How long (ms) after its failure the lease of a request is released once more, and between two attempts. */
const LATE = 1_000;
/** For how long (ms) that is tried. */
const LATEST = 90_000;

/** The second release of a request that failed: a connection that was lost may deliver it after the first. */
class LateRelease implements Expiring {
  private readonly until = performance.now() + LATEST;

  constructor(
    private readonly calls: StoreCalls,
    private readonly key: string,
    private readonly token: string,
  ) {}

  start(): void {
    if (!this.calls.stopped && performance.now() < this.until) this.calls.timeouts.start(LATE, this);
  }

  expire(): void {
    releaseLease(this.calls, this.key, this.token, () => this.start());
  }
}

/** The store's answer for a granted lease, and what was known at that time. */
interface Granted {
  /** When the lease began, in µs by the clock of the store. */
  readonly at: number;
  /** When this process knew of it, in ms of its monotonic clock. */
  readonly knownAt: number;
  /** The versions of the tags that the options name. */
  readonly tagVersions: readonly TagVersion[];
  /** The count of `InvalidatedTags`. */
  readonly invalidatedTags: number;
}

/** Gives back a lease that may have been granted. If that fails, the lease ends by itself. */
function releaseLease(calls: StoreCalls, key: string, token: string, failed: () => void = ignore): void {
  calls.send('release of the lease', key, () => calls.store.release({ key, token }), ignore, failed);
}

function ignore(): void {}
