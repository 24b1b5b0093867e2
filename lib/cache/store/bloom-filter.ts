import { randomUUID, hash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { whyNotAName } from '../../keys/key-part.js';
import type { Duration } from '../../options/checks.js';
import { cacheOption } from '../../options/option-checks.js';
import type { StoreCalls } from './store-calls.js';

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

/** Options of `BloomFilter.rebuild`. */
export interface BloomRebuildOptions {
  /**
   * How long the rebuild waits before it reads the ids: at least as long as the longest transaction that inserts one,
   * so that the row of every id added before the rebuild is visible. Counted from the start of the rebuild.
   * @default '10s'
   */
  settle?: Duration;
}

/** Ids in a list, or streamed, such as from a database cursor. */
export type IdSource = Iterable<string> | AsyncIterable<string>;

/** How long (ms) the rebuild of a process that died blocks other rebuilds. */
const LEASE = 60_000;

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
  async rebuild(read: () => IdSource | Promise<IdSource>, options: BloomRebuildOptions = {}): Promise<boolean> {
    const { name, key, shape, ttl, calls } = this;
    cacheOption.only('rebuild', options, ['settle']);
    const { settle = '10s' } = options;
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
      for await (const ids of inChunks(await read(), shape.idsPerCall)) {
        requireKept(await add(shape.positionsOfAll(ids)));
      }
      requireKept(await calls.run('bloom rebuild', name, () => bits.finishRebuild({ key, token, ttl })));
      return true;
    } catch (error) {
      calls.run('bloom rebuild', name, () => bits.dropRebuild({ key, token })).catch(() => {});
      throw error;
    } finally {
      clearInterval(renewal);
    }
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

/** The size limit of a string in Redis: 512 MiB. */
const MOST_BITS = 2 ** 32;
/** How many bits one call sets or reads: they block other clients for about a millisecond. */
const BITS_PER_CALL = 4_000;

/**
 * The size of a Bloom filter, and the bits of an id. Bloom, "Space/time trade-offs in hash coding with allowable
 * errors", 1970: for n ids and an error rate p, -n ln p / (ln 2)^2 bits, of which each id sets -log2 p.
 */
export class BloomShape {
  readonly bits: number;
  readonly bitsPerId: number;
  readonly idsPerCall: number;

  constructor(capacity: number, errorRate: number) {
    if (!Number.isInteger(capacity) || capacity < 1)
      throw cacheOption.refused('capacity', capacity, 'a whole number of ids, from 1');
    if (typeof errorRate !== 'number' || !(errorRate >= 1e-9 && errorRate <= 0.5))
      throw cacheOption.refused('errorRate', errorRate, 'a number from 1e-9 to 0.5');
    this.bits = Math.max(8, Math.ceil((-capacity * Math.log(errorRate)) / Math.LN2 ** 2));
    this.bitsPerId = Math.max(1, Math.round(-Math.log2(errorRate)));
    this.idsPerCall = Math.ceil(BITS_PER_CALL / this.bitsPerId);
    if (this.bits > MOST_BITS) {
      const most = Math.floor((MOST_BITS * Math.LN2 ** 2) / -Math.log(errorRate));
      throw cacheOption.refused(
        'capacity',
        capacity,
        `at most ${most} with errorRate ${errorRate}, or a greater errorRate`,
      );
    }
  }

  /**
   * Computes all positions from two hashes: Kirsch and Mitzenmacher, "Less Hashing, Same Performance", 2006; with the
   * step growing as in Dillinger and Manolios, "Bloom Filters in Probabilistic Verification", 2004, so that no two ids
   * with the same step share all their bits.
   */
  positions(id: string): number[] {
    const digest = hash('sha1', id, 'buffer');
    let position = digest.readUIntBE(0, 6) % this.bits;
    let step = digest.readUIntBE(6, 6) % this.bits;
    return Array.from({ length: this.bitsPerId }, (_, index) => {
      const current = position;
      position = (position + step) % this.bits;
      step = (step + index + 1) % this.bits;
      return current;
    });
  }

  positionsOfAll(ids: readonly string[]): number[] {
    return ids.flatMap((id) => this.positions(id));
  }
}

/** Reads no further ahead than one chunk. */
async function* inChunks(ids: IdSource, size: number): AsyncGenerator<string[], void, undefined> {
  if (typeof ids === 'string') throw cacheOption.refused('ids', ids, 'a list of ids');
  let chunk: string[] = [];
  for await (const id of ids) {
    if (typeof id !== 'string') throw cacheOption.refused('id', id, 'a text');
    if (chunk.push(id) < size) continue;
    yield chunk;
    chunk = [];
  }
  if (chunk.length > 0) yield chunk;
}
