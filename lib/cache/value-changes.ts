/* What the operations of the cache change. Keys, prefixes and patterns are full, with the prefix of their namespace. */

import { textOf } from '../errors/limited-log.js';
import { setTimeout as sleep } from 'node:timers/promises';
import type { StoredData, DeleteMatchingRequest } from '../contracts/cache-store.js';
import { CacheBackendError, CacheConfigError } from '../errors/cache-errors.js';
import { cacheChannels } from '../events/cache-channels.js';
import { cacheOption } from '../options/option-checks.js';
import type { CacheEngine } from './cache-engine.js';
import type { DoubleDeletionTarget } from './invalidation/double-deletions.js';
import { keyResource, tagResource, type Access } from './invalidation/step-order.js';
import { about, type KeyScope } from './key-scope.js';
import type { DeleteMatchingOptions, DoubleDeleteOptions } from './operations.js';
import { type EntrySettings, staleTtlOf, timeToLive } from './options/entry-settings.js';
import { publishInvalidate, publishRead } from './store/cache-stats.js';
import { freshValue, withoutRedis } from './value-reads.js';
import { countable, openHead, type Serialized } from './values/envelope.js';

/** Stores the value once `go` resolves; `false` when it was not stored. */
export async function storeValue(
  engine: CacheEngine,
  key: string,
  value: unknown,
  settings: EntrySettings,
  ifAbsent: boolean,
  go: Promise<unknown> | undefined,
): Promise<boolean> {
  const ttl = timeToLive(value, settings);
  if (ttl === 0) {
    if (!ifAbsent) await engine.invalidations.invalidate([key], settings);
    return !ifAbsent;
  }
  try {
    const write = new ValueWrite(engine, key, value, ttl, staleTtlOf(value, settings), settings);
    return await write.store(ifAbsent, go);
  } catch (error) {
    // A refused value: the stored one is out of date all the same.
    if (error instanceof CacheConfigError && !ifAbsent) {
      await engine.invalidations.invalidate([key], settings).catch(() => {});
    }
    return withoutRedis(engine, error, settings) ?? false;
  }
}

/** Adds to the number under the key, and returns the sum. @throws CacheConfigError when the value is not a number */
export async function addToNumber(engine: CacheEngine, key: string, by: number, ttl: number): Promise<number> {
  const { calls, local, stepOrder } = engine;
  local.forget(key);
  try {
    return await stepOrder.run([{ resource: keyResource(key), mode: 'increment' }], async () => {
      if (hasDeletions(engine)) await endDeletions(engine, key);
      return calls.run('increment', key, () => calls.store.increment({ key, by, ttl }));
    });
  } catch (error) {
    if (!/not an integer|overflow|out of range/.test(textOf(error))) throw error;
    throw new CacheConfigError(
      `The value of "${key}" is not a whole number to which ${by} can be added: ${textOf(error)}; delete it, or set a number`,
      [key],
    );
  } finally {
    local.forget(key);
  }
}

/** Ends the deletions that come before a change of what is stored under the key. @throws CacheBackendError */
async function endDeletions(
  { invalidations, matchingDeletions, unconfirmed }: CacheEngine,
  key: string,
): Promise<void> {
  if (unconfirmed.size > 0) await unconfirmed.settle(key);
  await matchingDeletions.overtake(key, () => invalidations.deleteWithin(key));
}

function hasDeletions({ matchingDeletions, unconfirmed }: CacheEngine): boolean {
  return unconfirmed.size > 0 || matchingDeletions.areUnderWay;
}

/** Deletes the value and returns it, if it is fresh. */
export async function takeValue(engine: CacheEngine, key: string, settings: EntrySettings): Promise<unknown> {
  const { calls, counters, invalidations, local, stepOrder, unconfirmed } = engine;
  counters.invalidations += 1;
  if (cacheChannels.invalidate.hasSubscribers) publishInvalidate({ key });
  local.forget(key);
  try {
    const data = await stepOrder.run([{ resource: keyResource(key) }], async () => {
      if (unconfirmed.size > 0) await unconfirmed.settle(key);
      return calls.run('get and deletion', key, () => calls.store.take(key));
    });
    const found = await freshValue(engine, key, data);
    counters[found ? 'secondLevelHits' : 'misses'] += 1;
    publishRead(key, found !== undefined);
    return found?.value;
  } catch (error) {
    if (error instanceof CacheBackendError) invalidations.deleteLater(key);
    return withoutRedis(engine, error, settings);
  } finally {
    local.forget(key);
  }
}

/** Makes the value expire `ttl` ms from now; `false` when there is none. */
export async function expireValue(engine: CacheEngine, key: string, ttl: number): Promise<boolean> {
  const { calls, local, stepOrder, unconfirmed } = engine;
  local.forget(key);
  try {
    return await stepOrder.run([{ resource: keyResource(key) }], async () => {
      if (unconfirmed.size > 0) await unconfirmed.settle(key);
      await keepTags(engine, key, ttl);
      return calls.run('expire', key, () => calls.store.expire({ key, ttl }));
    });
  } finally {
    local.forget(key);
  }
}

/** Lets the store keep the tags of a value for as long as the value, which is to end `ttl` ms from now. */
async function keepTags({ calls, tagStamps }: CacheEngine, key: string, ttl: number): Promise<void> {
  const { value } = await calls.run('read', key, () => calls.store.inspect(key));
  const { tags, keptStale } = (value && openHead(value.head)) ?? {};
  // It stays for as long after its freshness as before, which is no more than what is left of it.
  if (value && tags) await tagStamps.ofWrite(key, Object.keys(tags), ttl + (keptStale ? value.ttl : 0));
}

const DEFAULT_BATCH = 100;

/** How many keys to look at in one step. @throws CacheConfigError */
export function batchOf(batch: number = DEFAULT_BATCH): number {
  cacheOption.require(Number.isSafeInteger(batch) && batch >= 1, 'batch', batch, 'a whole number from 1 on');
  return batch;
}

/**
 * Checks the options of `method`, and returns what deletes the values of all keys that match and resolves to how many
 * there were. @throws CacheConfigError
 */
export function matchingDeletion(
  scope: KeyScope,
  method: string,
  match: DeleteMatchingRequest['match'],
  given: DeleteMatchingOptions = {},
): () => Promise<number> {
  const { batch, ...options }: DeleteMatchingOptions = cacheOption.object('options', given, 'an object of options');
  const named = ['prefix' in match ? match.prefix : match.pattern];
  const request = { match, batch: about(method, named, () => batchOf(batch)) };
  const { failOpen } = scope.settings('read', method, named, options);
  return () => scope.engine.matchingDeletions.delete(request, failOpen);
}

/** Deletes before and after the write, and once more after `delay`. */
export function deleteTwice<T>(
  scope: KeyScope,
  method: string,
  target: DoubleDeletionTarget,
  write: () => Promise<T>,
  { delay, ...options }: DoubleDeleteOptions,
): Promise<T> {
  const named = 'keys' in target ? target.keys : [target.prefix];
  const wait = about(method, named, () => cacheOption.timerMilliseconds('delay', delay, 1));
  const { failOpen } = scope.settings('read', method, named, options);
  return scope.engine.doubleDeletions.run(target, write, wait, failOpen);
}

/** How often a value is sent if it reaches Redis too late, after a standstill of this process or of the network. */
const MOST_TIMES = 4;

/** Stores one value by hand, in the state that it had at the call. */
class ValueWrite {
  /** The digits of a number that `incr` can count, or the content of the envelope. */
  private readonly content: string | Serialized;
  private readonly tags: readonly string[];

  /** @throws CacheConfigError for a value that cannot be stored */
  constructor(
    private readonly engine: CacheEngine,
    private readonly key: string,
    value: unknown,
    private readonly ttl: number,
    private readonly staleTtl: number,
    { tags, revive }: EntrySettings,
  ) {
    this.tags = tags;
    if (value instanceof Promise) throw cacheOption.refused('value', value, 'what the promise resolves to: await it');
    const counts = tags.length === 0 && staleTtl === 0 && countable(value);
    this.content = counts ? String(value) : this.serialized(value, revive);
  }

  /** Stores after the steps called before, and after `go`. Resolves to whether it stored. @throws CacheBackendError */
  async store(ifAbsent: boolean, go: Promise<unknown> | undefined): Promise<boolean> {
    const { engine, key } = this;
    const { invalidations, local, matchingDeletions, stepOrder } = engine;
    const accesses: Access[] = [{ resource: keyResource(key) }];
    for (const tag of this.tags) accesses.push({ resource: tagResource(tag), mode: 'begin' });
    local.forget(key);
    if (!ifAbsent) matchingDeletions.spare(key);
    try {
      return await stepOrder.run(accesses, async () => {
        if (go) await go;
        if (ifAbsent && hasDeletions(engine)) await endDeletions(engine, key);
        if (await this.send(ifAbsent)) return true;
        const over = ifAbsent ? await this.outdated() : undefined;
        return over !== undefined && this.send(true, over);
      });
    } catch (error) {
      if (error instanceof CacheBackendError && !ifAbsent) invalidations.deleteLater(key);
      throw error;
    } finally {
      local.forget(key);
    }
  }

  /** What is stored, if it counts as none: stale, deleted by a tag, or not to be read. */
  private async outdated(): Promise<Buffer | undefined> {
    const { engine, key } = this;
    const data = await engine.calls.run('read', key, () => engine.calls.store.read(key));
    return data && (await freshValue(engine, key, data)) === undefined ? data : undefined;
  }

  private async send(ifAbsent: boolean, over?: Buffer): Promise<boolean> {
    const { engine, key } = this;
    const { calls, invalidations } = engine;
    const ttl = this.ttl + this.staleTtl;
    const data = await this.sealed();
    const within = calls.options.commandTimeout;
    const request = { key, data, ttl, ifAbsent, within, ...(over && { over }) };
    // A value whose reply came too late may have been stored, and may be older than a later change.
    const late = (stored: boolean | 'late') => stored === true && invalidations.deleteLater(key);
    const before = invalidations.neededUntilStored(key);
    const { store } = calls;
    let until = 0;
    let { resends } = store;
    const call = () => {
      until = performance.now() + within;
      resends = store.resends;
      return store.set(request);
    };
    // Until then Redis may still store a value, which would undo a later change.
    const untilRefused = async () => {
      const left = until - performance.now();
      if (left > 0) await sleep(left);
    };
    try {
      for (let time = 1; time <= MOST_TIMES; time++) {
        const stored = await calls.run('set', key, call, late);
        if (stored === true) engine.unconfirmed.confirmed(before);
        if (stored === 'late') continue;
        if (store.resends !== resends) await untilRefused();
        return stored;
      }
      throw calls.failure('set', key, `it reached Redis more than ${within} ms after it was sent, ${MOST_TIMES} times`);
    } catch (error) {
      if (store.resends !== resends || !isAnswer(error)) await untilRefused();
      throw error;
    }
  }

  private async sealed(): Promise<StoredData> {
    if (typeof this.content === 'string') return this.content;
    const { engine, key, ttl, staleTtl, content } = this;
    const tags = this.tags.length > 0 ? await engine.tagStamps.ofWrite(key, this.tags, ttl + staleTtl) : undefined;
    const mark = { expiresAt: Date.now() + ttl, keptStale: staleTtl > 0, loadTime: undefined, ttl: undefined, tags };
    try {
      return await engine.envelopes.seal(content, mark);
    } catch (error) {
      throw unstorable(key, error);
    }
  }

  private serialized(value: unknown, revive: EntrySettings['revive']): Serialized {
    try {
      return this.engine.envelopes.serialize(this.key, value, revive);
    } catch (error) {
      throw unstorable(this.key, error);
    }
  }
}

function unstorable(key: string, error: unknown): CacheConfigError {
  return new CacheConfigError(`The value of "${key}" cannot be stored: ${textOf(error)}`, [key]);
}

/** Whether it is a reply of Redis. */
function isAnswer(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) if (cause.name === 'ReplyError') return true;
  return false;
}
