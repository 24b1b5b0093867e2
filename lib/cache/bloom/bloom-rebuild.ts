import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BloomShape } from './bloom-shape.js';
import { LONGEST_DELAY, milliseconds, type Duration } from '../options/cache-durations.js';
import { inChunks, type IdSource } from './id-source.js';
import type { StoreCalls } from '../store/store-calls.js';

/** How `BloomFilter.rebuild` goes about it. */
export interface BloomRebuildOptions {
  /**
   * How long the row of an id that was added to the filter may take to become visible: the longest transaction that
   * inserts one. So long is waited before the ids are read.
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

/** How long (ms) a process that died keeps others from rebuilding. */
const LEASE = 60_000;

/** As `BloomFilter.rebuild` says. */
export async function rebuildBloomFilter(
  { name, key, shape, ttl, calls }: Rebuilt,
  read: () => IdSource | Promise<IdSource>,
  { settle = '10s' }: BloomRebuildOptions,
): Promise<boolean> {
  const settling = milliseconds('settle', settle, 0, LONGEST_DELAY);
  const { bits } = calls.store;
  const token = randomUUID();
  const lease = { key, token, lease: LEASE };
  const add = (positions: readonly number[]) =>
    calls.run('bloom rebuild', name, () => bits.addToRebuild({ ...lease, positions }));
  const requireKept = (kept: boolean) => {
    if (!kept) throw calls.failure('bloom rebuild', name, 'it was lost on the way, or cleared; rebuild again');
  };

  // The source of the ids may take its time.
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
