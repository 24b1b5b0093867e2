import type { InvalidateRequest, DeleteMatchingRequest } from '../../contracts/cache-store.js';
import type { Pending } from '../../contracts/store.js';
import { CacheBackendError } from '../../errors/cache-errors.js';
import { textOf, type Warnings } from '../../errors/limited-log.js';
import { cacheChannels } from '../../events/cache-channels.js';
import { redisGlob } from '../../keys/redis-glob.js';
import { publishInvalidate, type CacheCounters } from '../store/cache-stats.js';
import { inBatches, valuesOf, type StoreCalls } from '../store/store-calls.js';
import type { LocalState } from './local-state.js';
import { keyOfResource, keyResource, tagResource, type StepOrder } from './step-order.js';
import type { Deletion, UnconfirmedDeletions } from './unconfirmed-deletions.js';

interface InvalidateSettings {
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

  /** Deletes the value of the key within a step of that key. @throws CacheBackendError */
  async deleteWithin(key: string): Promise<void> {
    throwFirst([await this.confirm(this.deletion({ key }))]);
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
    // That of the barrier which it lifts or begins: such a deletion does not replace one that only deletes the value.
    const token = lift ?? barrier?.token;
    return {
      what: `invalidation of "${key}"`,
      operation: 'invalidation',
      name: `k${token ?? ''}:${key}`,
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

/** How long (ms) a barrier outlives a writer that died. Renewed every third of it. */
const WRITE_BARRIER = 10_000;

/** Runs writes behind a barrier: nothing is stored under their keys meanwhile. */
export class Mutations {
  constructor(
    private readonly calls: StoreCalls,
    private readonly invalidations: Invalidations,
    private readonly warnings: Warnings,
    private readonly nextToken: () => string,
  ) {}

  /**
   * Deletes the keys before and after the write. Should this process die in between, nothing old is left, and loads
   * store nothing until the barrier ends.
   */
  async run<T>(
    keys: readonly string[],
    write: () => Promise<T>,
    { barrier, failOpen }: InvalidateSettings,
  ): Promise<T> {
    const { invalidations } = this;
    const token = this.nextToken();
    const after = barrier > 0 ? { barrier: { token: this.nextToken(), ttl: barrier } } : {};
    try {
      await invalidations.deleteEach(keys, (key) => ({ key, barrier: { token, ttl: WRITE_BARRIER } }), failOpen);
    } catch (error) {
      await invalidations.deleteEach(keys, (key) => ({ key, lift: token }), true);
      throw error;
    }
    const renewal = setInterval(() => this.renewBarriers(keys, token), WRITE_BARRIER / 3).unref();
    try {
      return await write();
    } finally {
      clearInterval(renewal);
      // Also after an error: a write that failed may have been carried out.
      await invalidations.deleteEach(keys, (key) => ({ key, lift: token, ...after }), true);
    }
  }

  private renewBarriers(keys: readonly string[], token: string): void {
    const { calls, warnings } = this;
    const ended = (key: string) =>
      `The barrier of "${key}" ended before its write did: values that were loaded since are deleted after the write`;
    for (const key of keys) {
      calls.send(
        'renewal of the barrier',
        key,
        () => calls.store.renewBarrier({ key, token, ttl: WRITE_BARRIER }),
        (renewed) => !renewed && warnings.warn(ended(key)),
        () => {},
      );
    }
  }
}

/** Deletes values by a prefix or a pattern of their keys; takes as many steps as the store has keys. */
export class MatchingDeletions {
  /** For each deletion under way, the keys that were stored since it began, and what it deletes. */
  private readonly underWay = new Map<Set<string>, (key: string) => boolean>();
  private readonly overtaking = new Map<string, Promise<void>>();

  constructor(
    private readonly calls: StoreCalls,
    private readonly stepOrder: StepOrder,
    private readonly counters: CacheCounters,
    private readonly unconfirmed: UnconfirmedDeletions,
    private readonly local: LocalState,
  ) {}

  /**
   * Returns how many values were deleted. Gives up when the store does not answer; the deletion is then repeated in the
   * background.
   */
  async delete({ match, batch }: DeleteMatchingRequest, failOpen: boolean): Promise<number> {
    const { store } = this.calls;
    const stored = new Set<string>();
    const request = { match, batch, spares: (key: string) => stored.has(key) };
    const matches = matching(match);
    const shown = 'prefix' in match ? `prefix "${match.prefix}"` : `pattern "${match.pattern}"`;
    const what = `deletion by ${shown}`;
    this.counters.invalidations += 1;
    if (cacheChannels.invalidate.hasSubscribers) {
      publishInvalidate({ matching: 'prefix' in match ? match.prefix : match.pattern });
    }
    this.local.forgetMatching(matches);
    this.underWay.set(stored, matches);
    try {
      await this.stepOrder.afterMatching((resource) => matches(keyOfResource(resource)));
      return await this.calls.runLong(what, () => store.deleteMatching(request));
    } catch (error) {
      this.counters.redisErrors += 1;
      const send = () => store.deleteMatching(request);
      this.unconfirmed.add({ what, operation: what, name: `p${shown}`, matches, send });
      if (failOpen) return 0;
      throw new CacheBackendError(`Cache: ${what} failed and is repeated: ${textOf(error)}`, [], error);
    } finally {
      this.underWay.delete(stored);
      this.local.forgetMatching(matches);
    }
  }

  get areUnderWay(): boolean {
    return this.underWay.size > 0;
  }

  /** Makes the deletions under way keep the value that is stored under the key from now on. */
  spare(key: string): void {
    for (const stored of this.underWay.keys()) stored.add(key);
  }

  /**
   * Before a change of what is stored under the key: a deletion under way may have yet to delete that, and is to keep
   * what comes of the change. So `remove` deletes it now.
   */
  async overtake(key: string, remove: () => Promise<void>): Promise<void> {
    let removal = this.overtaking.get(key);
    if (!removal) {
      if (![...this.underWay].some(([stored, matches]) => matches(key) && !stored.has(key))) return;
      this.spare(key);
      removal = remove().finally(() => this.overtaking.delete(key));
      this.overtaking.set(key, removal);
    }
    await removal;
  }
}

/** The characters that a store may escape in a key. */
const STORED_OTHERWISE = /\}|%(?=25|7D)/;

/**
 * Whether a key is deleted. A key that the store escapes counts as deleted by every pattern, which may match its
 * escaped form.
 */
function matching(match: DeleteMatchingRequest['match']): (key: string) => boolean {
  if ('prefix' in match) return (key) => key.startsWith(match.prefix);
  const matches = redisGlob(match.pattern);
  return (key) => matches(key) || STORED_OTHERWISE.test(key);
}
