import type { StoredValueState, TagState } from '../../contracts/cache-store.js';
import type { CacheKeyInfo } from '../api/cache-key-info.js';
import type { CacheEngine } from '../cache-engine.js';
import { isFresh, withTagStates } from '../read/stored-values.js';
import { countedNumber, type Entry } from '../values/envelope.js';
import { openHead } from '../values/envelope-head.js';

type ValueInfo = Omit<CacheKeyInfo, 'loading' | 'barrier'>;

/** Asks the store, not the first level, for what it keeps; `null` for nothing. The key is full. */
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

const NO_VALUE: ValueInfo = { state: 'absent', freshFor: 0, keptFor: 0, bytes: 0, tags: [], invalidatedTags: [] };

async function valueInfo(engine: CacheEngine, key: string, { head, bytes, ttl }: StoredValueState): Promise<ValueInfo> {
  const info = { ...NO_VALUE, keptFor: ttl, bytes };
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
  return { ...info, state: 'fresh', freshFor };
}

function withTag(entry: Entry, tag: string, state: TagState) {
  return withTagStates({ value: undefined, entry }, [tag], [state]);
}

async function tagStates({ calls, stepOrder }: CacheEngine, key: string, tags: readonly string[]) {
  const changes = stepOrder.afterTags(tags);
  if (changes) await changes;
  return calls.run('read of the tags', key, () => calls.store.readTags(tags));
}
