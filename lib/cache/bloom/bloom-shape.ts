import { hash } from 'node:crypto';
import { cacheOption } from '../../options/option-checks.js';

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
    if (!(errorRate >= 1e-9 && errorRate <= 0.5))
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
