/*
 * What the operations of the cache read. All keys are full, with the prefix of their namespace, but for those of
 * `loadValues`.
 */

import type { StoredValueState, TagState } from '../contracts/cache-store.js';
import { CacheBackendError } from '../errors/cache-errors.js';
import { cacheChannels } from '../events/cache-channels.js';
import type { CacheEngine } from './cache-engine.js';
import { keyResource } from './invalidation/step-order.js';
import { cacheKeys } from './key-scope.js';
import type { BatchLoader } from './load/cache-loader.js';
import type { CacheKeyInfo } from './operations.js';
import { lifetimeLeft, type EntrySettings } from './options/entry-settings.js';
import { BatchLoad } from './read/batch-load.js';
import { isFresh, type FoundValue, withTagStates } from './read/stored-values.js';
import { publishHit, publishRead } from './store/cache-stats.js';
import { inBatches, valuesOf } from './store/store-calls.js';
import { countedNumber, type Entry, openHead } from './values/envelope.js';

/** Reads the stored value without loading it. */
export async function getValue<T>(engine: CacheEngine, key: string, settings: EntrySettings): Promise<T | undefined> {
  const kept = keptValue(engine, key, settings);
  if (kept) return kept.value as T;
  const changes = engine.stepOrder.afterKey(key);
  if (changes) await changes;
  return find<T>(engine, key, settings, () => read(engine, key));
}

export async function getValues<T>(
  engine: CacheEngine,
  keys: readonly string[],
  settings: EntrySettings,
): Promise<(T | undefined)[]> {
  // Reads all keys before any tag: a change of a tag may wait for a change of one of these keys, which would wait for
  // the read of that key.
  const reads = await inBatches(keys, (key, go) => readAhead<T>(engine, key, settings, go));
  return valuesOf(await Promise.allSettled(valuesOf(reads).map((judge) => judge())));
}

/** Reads the values of the keys, given without `keyPrefix`, and loads the missing ones in one call. */
export async function loadValues<T>(
  engine: CacheEngine,
  keyPrefix: string,
  keys: readonly string[],
  loader: BatchLoader<T>,
  settings: EntrySettings,
): Promise<T[]> {
  // The caller may use its list again meanwhile.
  const asked = [...keys];
  const unique = cacheKeys(asked);
  const batch = new BatchLoad(unique, loader, engine.loadScopes, engine.refresher, keyPrefix);
  const readOrLoad: Parameters<BatchLoad['run']>[0] = (key, loading, participant) =>
    engine.reads.read(keyPrefix + key, loading, settings, participant);
  const values = valuesOf(await batch.run(readOrLoad));
  const byKey = new Map(unique.map((key, index) => [key, values[index]]));
  return asked.map((key) => byKey.get(key) as T);
}

/** Milliseconds until the value is removed; `null` when there is none. */
export async function remainingTime(engine: CacheEngine, key: string): Promise<number | null> {
  // A script that the server does not know is sent again, which a change that is called later must not overtake.
  const left = await engine.stepOrder.run([{ resource: keyResource(key), mode: 'read' }], async () => {
    if (engine.unconfirmed.size > 0) await engine.unconfirmed.settle(key);
    return engine.calls.run('ttl', key, () => engine.calls.store.ttl(key));
  });
  return left === null ? null : lifetimeLeft(left);
}

export async function hasValue(engine: CacheEngine, key: string): Promise<boolean> {
  const changes = engine.stepOrder.afterKey(key);
  if (changes) await changes;
  if (engine.unconfirmed.size > 0) await engine.unconfirmed.settle(key);
  return (await freshValue(engine, key, await read(engine, key))) !== undefined;
}

/** Asks the store, not the first level, for what it keeps; `null` for nothing. */
export async function inspectKey(engine: CacheEngine, key: string): Promise<CacheKeyInfo | null> {
  const { calls, stepOrder, unconfirmed } = engine;
  const changes = stepOrder.afterKey(key);
  if (changes) await changes;
  if (unconfirmed.size > 0) await unconfirmed.settle(key);
  const { value, lease, barrier } = await calls.run('inspect', key, () => calls.store.inspect(key));
  if (!value && lease === null && !barrier) return null;
  const loading = lease === null ? {} : { loading: lease };
  return { ...(value ? await valueInfo(engine, key, value) : NO_VALUE), ...loading, barrier };
}

/** The value in the store's answer, if it is fresh by its time and its tags. */
export async function freshValue(
  { values }: CacheEngine,
  key: string,
  data: Buffer | null,
): Promise<FoundValue | undefined> {
  const found = data === null ? undefined : values.decode(key, data);
  if (!found?.entry?.tags) return found && isFresh(found) ? found : undefined;
  const judged = isFresh(found) ? await values.checkTags(key, found, []) : undefined;
  return judged && isFresh(judged) ? judged : undefined;
}

/** Returns `undefined` instead of a failure of Redis if the settings ask for that. @throws any other error */
export function withoutRedis({ counters }: CacheEngine, error: unknown, { failOpen }: EntrySettings): undefined {
  if (!(error instanceof CacheBackendError) || !failOpen) throw error;
  counters.redisErrors += 1;
  return undefined;
}

function keptValue({ firstLevel, counters }: CacheEngine, key: string, { strong }: EntrySettings) {
  const kept = strong ? undefined : firstLevel?.get(key);
  if (!kept) return undefined;
  counters.firstLevelHits += 1;
  if (cacheChannels.hit.hasSubscribers) publishHit(key, undefined, 'first');
  return kept;
}

function read({ calls }: CacheEngine, key: string): Promise<Buffer | null> {
  return calls.run('read', key, () => calls.store.read(key));
}

/**
 * Reads after `go`, and before any change that is called later. Resolves, after the read, to a function that judges it.
 */
async function readAhead<T>(
  engine: CacheEngine,
  key: string,
  settings: EntrySettings,
  go: Promise<unknown> | undefined,
): Promise<() => Promise<T | undefined>> {
  const kept = keptValue(engine, key, settings);
  if (kept) return async () => kept.value as T;
  const inOrder = async () => {
    await go;
    return read(engine, key);
  };
  const reading = go
    ? engine.stepOrder.run([{ resource: keyResource(key), mode: 'read' }], inOrder)
    : (engine.stepOrder.afterKey(key)?.then(() => read(engine, key)) ?? read(engine, key));
  await reading.catch(() => {});
  return () => find<T>(engine, key, settings, () => reading);
}

async function find<T>(
  engine: CacheEngine,
  key: string,
  settings: EntrySettings,
  reading: () => Promise<Buffer | null>,
): Promise<T | undefined> {
  const { counters, firstLevel, unconfirmed } = engine;
  const doubt = unconfirmed.doubtAbout(key);
  if (doubt && settings.failOpen) return undefined;
  try {
    if (doubt) throw doubt;
    const found = await freshValue(engine, key, await reading());
    counters[found ? 'secondLevelHits' : 'misses'] += 1;
    publishRead(key, found !== undefined);
    return found?.value as T | undefined;
  } catch (error) {
    const spare = settings.strong || doubt ? undefined : firstLevel?.spare(key);
    if (spare) return spare.value as T;
    return withoutRedis(engine, error, settings);
  }
}

type ValueInfo = Omit<CacheKeyInfo, 'loading' | 'barrier'>;

const NO_VALUE: ValueInfo = { state: 'absent', freshFor: 0, keptFor: 0, bytes: 0, tags: [], invalidatedTags: [] };

async function valueInfo(engine: CacheEngine, key: string, { head, bytes, ttl }: StoredValueState): Promise<ValueInfo> {
  const info = { ...NO_VALUE, keptFor: lifetimeLeft(ttl), bytes };
  const entry = openHead(head);
  if (!entry) return countedNumber(head) === undefined ? { ...info, state: 'unreadable' } : fresh(info, ttl);
  const tags = Object.keys(entry.tags ?? {});
  const states = tags.length > 0 ? await tagStates(engine, key, tags) : [];
  const invalidatedTags = tags.filter((tag, index) => !withTag(entry, tag, states[index] ?? null));
  const tagged = { ...info, tags, invalidatedTags };
  const found = withTagStates({ value: undefined, entry }, tags, states);
  if (!found) return { ...tagged, state: 'invalidated' };
  if (!isFresh(found)) return { ...tagged, state: 'stale' };
  return fresh(tagged, entry.keptStale ? Math.min(ttl, Math.max(0, entry.expiresAt - Date.now())) : ttl);
}

function fresh(info: ValueInfo, freshFor: number): ValueInfo {
  return { ...info, state: 'fresh', freshFor: lifetimeLeft(freshFor) };
}

function withTag(entry: Entry, tag: string, state: TagState) {
  return withTagStates({ value: undefined, entry }, [tag], [state]);
}

async function tagStates({ calls, stepOrder }: CacheEngine, key: string, tags: readonly string[]) {
  const changes = stepOrder.afterTags(tags);
  if (changes) await changes;
  return calls.run('read of the tags', key, () => calls.store.readTags(tags));
}
