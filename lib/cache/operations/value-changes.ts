import { cacheChannels } from '../../events/cache-channels.js';
import { publishInvalidate, publishRead } from '../store/cache-events.js';
import { CacheBackendError, CacheConfigError } from '../../errors/cache-errors.js';
import type { CacheEngine } from '../cache-engine.js';
import { keyResource } from '../invalidation/step-order.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { staleTtlOf, timeToLive } from '../options/time-to-live.js';
import { freshValue, withoutRedis } from './value-reads.js';
import { ValueWrite } from './value-write.js';

/** Stores the value once `go` resolves; `false` when it was not stored. All keys in this file are full. */
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
  const write = new ValueWrite(engine, key, value, ttl, staleTtlOf(value, settings), settings);
  try {
    return await write.store(ifAbsent, go);
  } catch (error) {
    return withoutRedis(engine, error, settings) ?? false;
  }
}

/** Adds to the number under the key, and returns the sum. @throws CacheConfigError when the value is not a number */
export async function addToNumber(engine: CacheEngine, key: string, by: number, ttl: number): Promise<number> {
  const { calls, local, stepOrder, unconfirmed } = engine;
  local.forget(key);
  try {
    return await stepOrder.run([{ resource: keyResource(key), mode: 'increment' }], async () => {
      if (unconfirmed.size > 0) await unconfirmed.settle(key);
      return calls.run('increment', key, () => calls.store.increment({ key, by, ttl }));
    });
  } catch (error) {
    if (!/not an integer|overflow|out of range/.test(String(error))) throw error;
    throw new CacheConfigError(
      `The value of "${key}" is not a whole number to which ${by} can be added: ${String(error)}; delete it, or set a number`,
      [key],
    );
  } finally {
    local.forget(key);
  }
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
      return calls.run('expire', key, () => calls.store.expire({ key, ttl }));
    });
  } finally {
    local.forget(key);
  }
}
