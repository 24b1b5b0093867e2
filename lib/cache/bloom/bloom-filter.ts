import { whyNotAName } from '../../keys/key-part.js';
import { rebuildBloomFilter, type BloomRebuildOptions } from './bloom-rebuild.js';
import { BloomShape } from './bloom-shape.js';
import type { Duration } from '../../options/duration.js';
import { cacheOption } from '../../options/option-checks.js';
import { inChunks, type IdSource } from './id-source.js';
import type { StoreCalls } from '../store/store-calls.js';

/** How large a filter is, and how long it is kept. */
export interface BloomFilterOptions {
  /**
   * How many ids the filter is made for; with more, it errs more often. Another capacity makes another filter:
   * processes that still use the old capacity do not add to it, so rebuild it once they have ended.
   */
  capacity: number;
  /** The share of unknown ids for which the filter says that they may exist. From 1e-9 to 0.5. @default 0.01 */
  errorRate?: number;
  /** How long Redis keeps an unused filter, which then has to be rebuilt; counted from its last use. @default '30d' */
  ttl?: Duration;
}

/**
 * Knows which ids do not exist, and saves queries for rows that the database never had. Takes about ten bits for each
 * id that exists.
 *
 * "Does not exist" is certain if each id was added *before its row became visible*, in or before the transaction that
 * inserts it, and if Redis lost no write. A failover of Redis may lose the last writes, and with them ids: rebuild
 * then. An id cannot be removed; a rebuild leaves out deleted ones.
 *
 * Until the first `rebuild` has finished, and after Redis lost the filter, it says of every id that it may exist.
 */
export class BloomFilter {
  private readonly shape: BloomShape;
  /** Contains the size: a filter of another size has another key. */
  private readonly key: string;
  private readonly ttl: number;

  /**
   * Created by `CacheService.bloomFilter`.
   * @internal
   */
  constructor(
    readonly name: string,
    { capacity, errorRate = 0.01, ttl = '30d' }: BloomFilterOptions,
    private readonly calls: StoreCalls,
  ) {
    if (whyNotAName(name))
      throw cacheOption.refused('name', name, 'the Bloom filter a name of one whole character or more');
    this.shape = new BloomShape(capacity, errorRate);
    this.ttl = cacheOption.milliseconds('ttl', ttl, 1_000);
    this.key = `${name}:${this.shape.bits}:${this.shape.bitsPerId}`;
  }

  /**
   * Adds the id. Call it before the row of the id becomes visible.
   * @throws CacheBackendError when Redis does not confirm it: do not make the row visible then, as the filter could say
   * that the id does not exist
   */
  add(id: string): Promise<void> {
    return this.addAll([id]);
  }

  /** As `add`, for many ids in one call. */
  async addAll(ids: IdSource): Promise<void> {
    const { bits } = this.calls.store;
    for await (const chunk of inChunks(ids, this.shape.idsPerCall)) {
      const request = { key: this.key, positions: this.shape.positionsOfAll(chunk), ttl: this.ttl };
      await this.calls.run('bloom add', this.name, () => bits.add(request));
    }
  }

  /** `false`: the id does not exist. `true`: it may exist, or the filter is lost, or Redis fails. */
  async mayHave(id: string): Promise<boolean> {
    const [may = true] = await this.mayHaveMany([id]);
    return may;
  }

  /** As `mayHave` for each id, in their order, many in one call. */
  async mayHaveMany(ids: IdSource): Promise<boolean[]> {
    const answers: boolean[] = [];
    for await (const chunk of inChunks(ids, this.shape.idsPerCall)) answers.push(...(await this.ask(chunk)));
    return answers;
  }

  /**
   * Builds a new filter of all ids and replaces the one in use at the end. Includes ids that any process adds
   * meanwhile. `read` returns all ids; query them when it is called, not before, or ids inserted in between are
   * missing.
   *
   * Resolves to `false`, without calling `read`, when another process is rebuilding the filter.
   * @throws CacheBackendError when Redis fails or loses the new filter, or what `read` throws; the filter in use then
   * stays unchanged
   */
  rebuild(read: () => IdSource | Promise<IdSource>, options: BloomRebuildOptions = {}): Promise<boolean> {
    const { name, key, shape, ttl, calls } = this;
    return rebuildBloomFilter({ name, key, shape, ttl, calls }, read, options);
  }

  /** Deletes the filter and a rebuild under way: every id may exist until the next rebuild. */
  async clear(): Promise<void> {
    await this.calls.run('bloom clear', this.name, () => this.calls.store.bits.clear(this.key));
  }

  private async ask(ids: readonly string[]): Promise<readonly boolean[]> {
    const request = { key: this.key, lists: ids.map((id) => this.shape.positions(id)), ttl: this.ttl };
    try {
      const answers = await this.calls.run('bloom look-up', this.name, () => this.calls.store.bits.has(request));
      if (answers) return answers;
    } catch {
      // Without an answer, every id may exist.
    }
    return ids.map(() => true);
  }
}
