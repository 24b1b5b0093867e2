import type { DeleteMatchingRequest, InvalidateRequest } from '../../contracts/cache-store.js';
import type { Pending } from '../../contracts/pending.js';
import { inBatches, valuesOf } from '../store/batches.js';
import type { CacheCore } from '../cache-core.js';
import { CacheBackendError } from '../../errors/cache-errors.js';
import { keyDeletion, type Deletion } from './pending-deletions.js';
import { keyOfResource, keyResource, tagResource } from './step-order.js';
import { redisGlob } from '../../keys/redis-glob.js';

/** How long (ms) a barrier outlives a writer that died; it is renewed every third of it. */
const WRITE_BARRIER = 10_000;

/** What a store may escape in a key. */
const STORED_OTHERWISE = /\}|%(?=25|7D)/;

export interface InvalidateSettings {
  /** Milliseconds after it during which nothing is stored. */
  readonly barrier: number;
  /** What is there is kept, and stale at once. */
  readonly softly?: boolean;
  readonly failOpen: boolean;
}

/** What a deletion came to. */
interface Outcome {
  /** Whether there was a value. */
  readonly found: boolean;
  /** Why it is repeated. */
  readonly failure?: CacheBackendError;
}

/** Deletes values, and fences whatever loads them: here, in the store, and through it in other processes. */
export class Invalidations {
  /** What was stored since they began, for each deletion under way that looks at every key. */
  private readonly sparing = new Set<Set<string>>();

  constructor(private readonly core: CacheCore) {}

  /** Answers how many values there were, as far as the store has confirmed it. */
  async invalidate(keys: readonly string[], { barrier, failOpen, softly }: InvalidateSettings): Promise<number> {
    const renewed = barrier > 0 ? { barrier: { token: this.core.nextToken(), ttl: barrier } } : {};
    const stale = softly ? { staleSince: Date.now() } : {};
    return this.deleteEach(keys, (key) => ({ key, ...renewed, ...stale }), failOpen);
  }

  /**
   * Nothing is stored under the keys from before the write until after it, even if this process dies in between: what
   * was stored is then gone, and what is loaded is not stored until the barrier ends.
   */
  async mutate<T>(
    keys: readonly string[],
    write: () => Promise<T>,
    { barrier, failOpen }: InvalidateSettings,
  ): Promise<T> {
    const token = this.core.nextToken();
    const after = barrier > 0 ? { barrier: { token: this.core.nextToken(), ttl: barrier } } : {};
    try {
      await this.deleteEach(keys, (key) => ({ key, barrier: { token, ttl: WRITE_BARRIER } }), failOpen);
    } catch (error) {
      await this.deleteEach(keys, (key) => ({ key, lift: token }), true);
      throw error;
    }
    const renewal = setInterval(() => this.renewBarriers(keys, token), WRITE_BARRIER / 3).unref();
    try {
      return await write();
    } finally {
      clearInterval(renewal);
      // Also after an error: a write that failed may have been carried out.
      await this.deleteEach(keys, (key) => ({ key, lift: token, ...after }), true);
    }
  }

  async doubleDelete<T>(
    keys: readonly string[],
    write: () => Promise<T>,
    delay: number,
    failOpen: boolean,
  ): Promise<T> {
    await this.deleteEach(keys, (key) => ({ key }), failOpen);
    // Should this process die before the end of the write. The one after it takes its place.
    await this.scheduleDeletion(keys, delay, failOpen);
    try {
      return await write();
    } finally {
      await this.deleteEach(keys, (key) => ({ key }), true);
      await this.scheduleDeletion(keys, delay, true);
    }
  }

  /** `softly`: what bears one of them is kept, and stale at once. */
  async deleteByTag(tags: readonly string[], failOpen: boolean, softly = false): Promise<void> {
    const { stepOrder, calls } = this.core;
    for (const tag of tags) this.forgetTag(tag);
    const outcomes = await Promise.all(
      tags.map((tag) => {
        const operation = `deletion by tag "${tag}"`;
        const send = () => calls.store.invalidateTag(tag);
        const deletion = { what: operation, operation, name: `t${tag}`, tag, send };
        const expiry = softly ? () => calls.store.invalidateTag(tag, true) : undefined;
        return stepOrder.run([{ resource: tagResource(tag), mode: 'deletion' }], () => this.confirm(deletion, expiry));
      }),
    );
    for (const tag of tags) this.forgetTag(tag);
    if (!failOpen) throwFirst(outcomes);
  }

  /** Takes as many steps as the store has keys, and is given up where the store does not answer. */
  async deleteMatching({ match, batch }: DeleteMatchingRequest, failOpen: boolean): Promise<number> {
    const { core } = this;
    const stored = new Set<string>();
    const request = { match, batch, spares: (key: string) => stored.has(key) };
    const matches = matching(match);
    const shown = 'prefix' in match ? `prefix "${match.prefix}"` : `pattern "${match.pattern}"`;
    const what = `deletion by ${shown}`;
    core.counters.invalidations += 1;
    this.forgetMatching(matches);
    this.sparing.add(stored);
    try {
      await core.stepOrder.afterMatching((resource) => matches(keyOfResource(resource)));
      return await core.calls.runLong(what, () => core.calls.store.deleteMatching(request));
    } catch (error) {
      core.counters.redisErrors += 1;
      core.unconfirmed.add({
        what,
        operation: what,
        name: `p${shown}`,
        matches,
        send: () => core.calls.store.deleteMatching(request),
      });
      if (failOpen) return 0;
      throw new CacheBackendError(`Cache: ${what} failed and is repeated: ${String(error)}`, [], error);
    } finally {
      this.sparing.delete(stored);
      this.forgetMatching(matches);
    }
  }

  /** What this process knows of the key may be old. */
  forget(key: string): void {
    const { firstLevel, flights, waiters, rests } = this.core;
    firstLevel?.delete(key);
    rests.end(key);
    flights.detach(key);
    waiters.wake(key);
  }

  /**
   * What is stored under the key was changed, by whoever, or has expired. Others go on joining the read under way: it
   * may be the very load that replaces what has expired.
   */
  forgetValue(key: string): void {
    const { firstLevel, flights } = this.core;
    firstLevel?.delete(key);
    flights.outdate(key);
  }

  /** Which of the reads under way will bear the tag is known when they land. */
  forgetTag(tag: string): void {
    const { firstLevel, invalidatedTags } = this.core;
    invalidatedTags.add(tag);
    firstLevel?.deleteByTag(tag);
  }

  forgetMatching(matches: (key: string) => boolean): void {
    const { firstLevel, flights, waiters } = this.core;
    firstLevel?.deleteMatching(matches);
    flights.detachMatching(matches);
    waiters.wakeMatching(matches);
  }

  /**
   * What is stored under the key must not be served any more, whatever becomes of the step that would have replaced it.
   */
  deleteLater(key: string): void {
    this.core.unconfirmed.add(this.deletion({ key }));
  }

  /** Deletions that look at every key, and began before this, leave what is stored under the key now. */
  spare(key: string): void {
    for (const stored of this.sparing) stored.add(key);
  }

  /** What need not be repeated once something else is stored under the key. */
  deletionsThen(key: string): readonly Deletion[] {
    const { unconfirmed } = this.core;
    return unconfirmed.size === 0 ? [] : unconfirmed.coveredBy(this.deletion({ key }));
  }

  private async scheduleDeletion(keys: readonly string[], delay: number, failOpen: boolean): Promise<void> {
    const { calls, counters, warnings, scheduled } = this.core;
    try {
      await calls.run('schedule of the second deletion', '', () => scheduled.schedule(keys, delay));
    } catch (error) {
      counters.redisErrors += 1;
      if (!failOpen) throw error;
      warnings.warn(`The second deletion of "${keys.join('", "')}" is kept in this process only: ${String(error)}`);
      setTimeout(() => void this.deleteEach(keys, (key) => ({ key }), true), delay).unref();
    }
  }

  private async deleteEach(
    keys: readonly string[],
    requestOf: (key: string) => InvalidateRequest,
    failOpen: boolean,
  ): Promise<number> {
    const { stepOrder, calls } = this.core;
    // Those after one that fails are to be repeated as well.
    const settled = await inBatches(keys, (key, go) => {
      const { staleSince, ...request } = requestOf(key);
      const deletion = this.deletion(request);
      const expiry = staleSince === undefined ? undefined : () => calls.store.invalidate({ ...request, staleSince });
      const access = { resource: keyResource(key), ...(deletion.plain && { mode: 'deletion' }) };
      this.forget(key);
      return stepOrder.run([access], async () => {
        if (go) await go;
        const outcome = await this.confirm(deletion, expiry);
        // What was read in between may be from before.
        this.forget(key);
        return outcome;
      });
    });
    const outcomes = valuesOf(settled);
    if (!failOpen) throwFirst(outcomes);
    return outcomes.filter(({ found }) => found).length;
  }

  private deletion(request: InvalidateRequest): Deletion {
    const { key, barrier, lift } = request;
    const { store } = this.core.calls;
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
   * Repeats it until the store confirms it. `expiry` is sent in its place first: what it leaves, no other deletion may
   * count as deleted, and where it is not confirmed, nothing is to be left.
   */
  private async confirm(deletion: Deletion, expiry?: () => Pending<unknown>): Promise<Outcome> {
    const { core } = this;
    core.counters.invalidations += 1;
    const before = expiry ? [] : core.unconfirmed.coveredBy(deletion);
    const send = expiry ?? (() => deletion.send());
    try {
      const found = await core.calls.run(deletion.operation, deletion.key ?? '', send);
      core.unconfirmed.confirmed(before);
      return { found: found === true };
    } catch (error) {
      core.counters.redisErrors += 1;
      core.unconfirmed.add(deletion);
      return { found: false, failure: error as CacheBackendError };
    }
  }

  private renewBarriers(keys: readonly string[], token: string): void {
    const { calls, warnings } = this.core;
    for (const key of keys) {
      calls.send(
        'renewal of the barrier',
        key,
        () => calls.store.renewBarrier({ key, token, ttl: WRITE_BARRIER }),
        (renewed) => {
          if (!renewed)
            warnings.warn(`The barrier of "${key}" ended before its write: what was loaded since is deleted after it`);
        },
        () => {},
      );
    }
  }
}

/**
 * The keys that are deleted, and no others; but where a key is stored under another name, which the pattern may match,
 * it counts as one.
 */
function matching(match: DeleteMatchingRequest['match']): (key: string) => boolean {
  if ('prefix' in match) return (key) => key.startsWith(match.prefix);
  const matches = redisGlob(match.pattern);
  return (key) => matches(key) || STORED_OTHERWISE.test(key);
}

function throwFirst(outcomes: readonly Outcome[]): void {
  const failed = outcomes.find(({ failure }) => failure !== undefined);
  if (failed) throw failed.failure;
}
