import { cacheChannels } from '../../events/cache-channels.js';
import type { InvalidateRequest } from '../../contracts/cache-store.js';
import type { Pending } from '../../contracts/pending.js';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import { inBatches, valuesOf } from '../store/batches.js';
import { publishInvalidate } from '../store/cache-events.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { LocalState } from './local-state.js';
import { keyDeletion, type Deletion } from './pending-deletions.js';
import { keyResource, tagResource, type StepOrder } from './step-order.js';
import type { UnconfirmedDeletions } from './unconfirmed-deletions.js';

export interface InvalidateSettings {
  /** How long (ms) nothing is stored under the keys afterwards. */
  readonly barrier: number;
  /** Keeps the values, stale at once. */
  readonly softly?: boolean;
  readonly failOpen: boolean;
}

interface Outcome {
  /** Whether there was a value. */
  readonly found: boolean;
  /** Why the store did not confirm the deletion, which is then repeated. */
  readonly failure?: CacheBackendError;
}

/** Deletes values by key and by tag, and takes the lease of every load that began before, in any process. */
export class Invalidations {
  constructor(
    private readonly calls: StoreCalls,
    private readonly stepOrder: StepOrder,
    private readonly counters: CacheCounters,
    private readonly unconfirmed: UnconfirmedDeletions,
    private readonly local: LocalState,
    private readonly nextToken: () => string,
  ) {}

  /** Returns how many values there were, as far as the store has confirmed it. */
  async invalidate(keys: readonly string[], { barrier, failOpen, softly }: InvalidateSettings): Promise<number> {
    const renewed = barrier > 0 ? { barrier: { token: this.nextToken(), ttl: barrier } } : {};
    const stale = softly ? { staleSince: Date.now() } : {};
    return this.deleteEach(keys, (key) => ({ key, ...renewed, ...stale }), failOpen);
  }

  /** `softly`: keeps the values with one of the tags, stale at once. */
  async deleteByTag(tags: readonly string[], failOpen: boolean, softly = false): Promise<void> {
    const { store } = this.calls;
    for (const tag of tags) this.local.forgetTag(tag);
    const outcomes = await Promise.all(
      tags.map((tag) => {
        const operation = `deletion by tag "${tag}"`;
        const send = () => store.invalidateTag(tag);
        const deletion = { what: operation, operation, name: `t${tag}`, tag, send };
        const expiry = softly ? () => store.invalidateTag(tag, true) : undefined;
        const accesses = [{ resource: tagResource(tag), mode: 'deletion' }];
        return this.stepOrder.run(accesses, () => this.confirm(deletion, expiry));
      }),
    );
    for (const tag of tags) this.local.forgetTag(tag);
    if (!failOpen) throwFirst(outcomes);
  }

  /** Sends one request for each key, and returns how many values there were. */
  async deleteEach(
    keys: readonly string[],
    requestOf: (key: string) => InvalidateRequest,
    failOpen: boolean,
  ): Promise<number> {
    // If one fails, the deletions after it have to be repeated as well.
    const settled = await inBatches(keys, (key, go) => {
      const { staleSince, ...request } = requestOf(key);
      const deletion = this.deletion(request);
      const expiry =
        staleSince === undefined ? undefined : () => this.calls.store.invalidate({ ...request, staleSince });
      const access = { resource: keyResource(key), ...(deletion.plain && { mode: 'deletion' }) };
      this.local.forget(key);
      return this.stepOrder.run([access], async () => {
        if (go) await go;
        const outcome = await this.confirm(deletion, expiry);
        // A value that was read in between may be older than the deletion.
        this.local.forget(key);
        return outcome;
      });
    });
    const outcomes = valuesOf(settled);
    if (!failOpen) throwFirst(outcomes);
    return outcomes.filter(({ found }) => found).length;
  }

  /** Deletes the value of the key in the background: a step that was to replace it may have failed. */
  deleteLater(key: string): void {
    this.unconfirmed.add(this.deletion({ key }));
  }

  /** The unconfirmed deletions that a new value under the key would make superfluous. */
  neededUntilStored(key: string): readonly Deletion[] {
    return this.unconfirmed.size === 0 ? [] : this.unconfirmed.coveredBy(this.deletion({ key }));
  }

  private deletion(request: InvalidateRequest): Deletion {
    const { key, barrier, lift } = request;
    const { store } = this.calls;
    const token = lift ?? barrier?.token;
    return {
      what: `invalidation of "${key}"`,
      operation: 'invalidation',
      name: keyDeletion(key, token),
      key,
      plain: token === undefined,
      send: () => store.invalidate(request),
    };
  }

  /**
   * Sends the deletion, and repeats it until the store confirms it. `expiry` is a soft expiry to send first instead. It
   * leaves a value, so it confirms no other deletion; if the store does not confirm the expiry, the deletion is
   * repeated in its place.
   */
  private async confirm(deletion: Deletion, expiry?: () => Pending<unknown>): Promise<Outcome> {
    this.counters.invalidations += 1;
    if (cacheChannels.invalidate.hasSubscribers) publishInvalidate(deletion);
    const before = expiry ? [] : this.unconfirmed.coveredBy(deletion);
    const send = expiry ?? (() => deletion.send());
    try {
      const found = await this.calls.run(deletion.operation, deletion.key ?? '', send);
      this.unconfirmed.confirmed(before);
      return { found: found === true };
    } catch (error) {
      this.counters.redisErrors += 1;
      this.unconfirmed.add(deletion);
      return { found: false, failure: error as CacheBackendError };
    }
  }
}

function throwFirst(outcomes: readonly Outcome[]): void {
  const failed = outcomes.find(({ failure }) => failure !== undefined);
  if (failed) throw failed.failure;
}
