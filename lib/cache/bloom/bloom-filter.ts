import { whyNotAName } from '../../keys/key-part.js';
import { rebuildBloomFilter, type BloomRebuildOptions } from './bloom-rebuild.js';
import { BloomShape } from './bloom-shape.js';
import { milliseconds, refused, type Duration } from '../options/cache-durations.js';
import { inChunks, type IdSource } from './id-source.js';
import type { StoreCalls } from '../store/store-calls.js';

/** How large a filter is, and how long it is kept. */
export interface BloomFilterOptions {
  /**
   * How many ids it is made for. With more it errs more often. Another capacity is another filter, to which processes
   * that still have the old one do not add: rebuild it when they have ended.
   */
  capacity: number;
  /** The part of the ids never added of which it says that they may be there. From 1e-9 to 0.5. @default 0.01 */
  errorRate?: number;
  /** How long it is kept when nobody asks it or adds to it. What is not kept has to be rebuilt. @default '30d' */
  ttl?: Duration;
}

/**
 * Knows which ids there are not, in about ten bits for each that there is, so that nobody looks in the database for
 * what it never had.
 *
 * "There is none" is sure as long as each id was added *before its row became visible*, in or before the transaction
 * that inserts it, and Redis keeps what it was told. A failover of Redis that loses its last writes loses ids with
 * them: rebuild then. An id cannot be removed; a rebuild leaves out those that are gone.
 *
 * It knows nothing, and says of each id that it may be there, until `rebuild` ran to its end once, and again after
 * Redis lost the filter.
 */
export class BloomFilter {
  private readonly shape: BloomShape;
  /** Other sizes are other filters. */
  private readonly key: string;
  private readonly ttl: number;

  /**
   * Made by `CacheService.bloomFilter`.
   * @internal
   */
  constructor(
    readonly name: string,
    { capacity, errorRate = 0.01, ttl = '30d' }: BloomFilterOptions,
    private readonly calls: StoreCalls,
  ) {
    if (whyNotAName(name)) throw refused('name', name, 'the Bloom filter a name of one whole character or more');
    this.shape = new BloomShape(capacity, errorRate);
    this.ttl = milliseconds('ttl', ttl, 1_000);
    this.key = `${name}:${this.shape.bits}:${this.shape.bitsPerId}`;
  }

  /**
   * Before the row of the id becomes visible.
   * @throws CacheBackendError when Redis does not confirm it: the filter could then deny the id, so do not make the row
   * visible
   */
  add(id: string): Promise<void> {
    return this.addAll([id]);
  }

  /** As `add`, many in one call. */
  async addAll(ids: IdSource): Promise<void> {
    const { bits } = this.calls.store;
    for await (const chunk of inChunks(ids, this.shape.idsPerCall)) {
      const request = { key: this.key, positions: this.shape.positionsOfAll(chunk), ttl: this.ttl };
      await this.calls.run('bloom add', this.name, () => bits.add(request));
    }
  }

  /** `false` is sure. `true` is not; also where the filter is lost, or Redis fails. */
  async mayHave(id: string): Promise<boolean> {
    const [may = true] = await this.mayHaveMany([id]);
    return may;
  }

  /** As `mayHave` for each id, many in one call, in their order. */
  async mayHaveMany(ids: IdSource): Promise<boolean[]> {
    const answers: boolean[] = [];
    for await (const chunk of inChunks(ids, this.shape.idsPerCall)) answers.push(...(await this.ask(chunk)));
    return answers;
  }

  /**
   * Makes the filter anew of all ids that there are, beside the one in use, whose place it takes at the end. Ids that
   * any process adds meanwhile are in it. `read` answers all ids, and is called when that has begun, so that none slips
   * through: let it read then, not before.
   *
   * `false` when another process is rebuilding it: then `read` is not called.
   * @throws CacheBackendError when Redis fails or loses it on the way, or what `read` throws; the filter in use is then
   * left as it is
   */
  rebuild(read: () => IdSource | Promise<IdSource>, options: BloomRebuildOptions = {}): Promise<boolean> {
    const { name, key, shape, ttl, calls } = this;
    return rebuildBloomFilter({ name, key, shape, ttl, calls }, read, options);
  }

  /** From here on it knows nothing, until it is rebuilt. A rebuild under way is lost. */
  async clear(): Promise<void> {
    await this.calls.run('bloom clear', this.name, () => this.calls.store.bits.clear(this.key));
  }

  private async ask(ids: readonly string[]): Promise<readonly boolean[]> {
    const request = { key: this.key, lists: ids.map((id) => this.shape.positions(id)), ttl: this.ttl };
    try {
      const answers = await this.calls.run('bloom look-up', this.name, () => this.calls.store.bits.has(request));
      if (answers) return answers;
    } catch {
      // What it cannot know may be.
    }
    return ids.map(() => true);
  }
}
