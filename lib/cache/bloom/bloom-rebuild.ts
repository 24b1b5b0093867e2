import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BloomShape } from './bloom-shape.js';
import type { Duration } from '../../options/duration.js';
import { cacheOption } from '../../options/option-checks.js';
import { inChunks, type IdSource } from './id-source.js';
import type { StoreCalls } from '../store/store-calls.js';

/** Options of `BloomFilter.rebuild`. */
export interface BloomRebuildOptions {
  /**
   * How long the rebuild waits before it reads the ids: at least as long as the longest transaction that inserts one,
   * so that the row of every id added before the rebuild is visible. Counted from the start of the rebuild.
   * @default '10s'
   */
  settle?: Duration;
}

interface Rebuilt {
  readonly name: string;
  readonly key: string;
  readonly shape: BloomShape;
  readonly ttl: number;
  readonly calls: StoreCalls;
}

/** How long (ms) the rebuild of a process that died blocks other rebuilds. */
const LEASE = 60_000;

/** See `BloomFilter.rebuild`. */
export async function rebuildBloomFilter(
  { name, key, shape, ttl, calls }: Rebuilt,
  read: () => IdSource | Promise<IdSource>,
  { settle = '10s' }: BloomRebuildOptions,
): Promise<boolean> {
  const settling = cacheOption.timerMilliseconds('settle', settle, 0);
  const { bits } = calls.store;
  const token = randomUUID();
  const lease = { key, token, lease: LEASE };
  const add = (positions: readonly number[]) =>
    calls.run('bloom rebuild', name, () => bits.addToRebuild({ ...lease, positions }));
  const requireKept = (kept: boolean) => {
    if (!kept)
      throw calls.failure('bloom rebuild', name, 'Redis lost the new filter, or it was cleared; rebuild again');
  };

  // Reading the ids may take longer than the lease.
  const renewal = setInterval(() => void add([]).catch(() => {}), LEASE / 3).unref();
  try {
    const begun = await calls.run('bloom rebuild', name, () => bits.beginRebuild({ ...lease, size: shape.bits }));
    if (!begun) return false;
    await sleep(settling, undefined, { ref: false });
    for await (const ids of inChunks(await read(), shape.idsPerCall)) requireKept(await add(shape.positionsOfAll(ids)));
    requireKept(await calls.run('bloom rebuild', name, () => bits.finishRebuild({ key, token, ttl })));
    return true;
  } catch (error) {
    calls.run('bloom rebuild', name, () => bits.dropRebuild({ key, token })).catch(() => {});
    throw error;
  } finally {
    clearInterval(renewal);
  }
}
