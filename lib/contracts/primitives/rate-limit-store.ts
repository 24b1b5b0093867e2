import type { Pending } from '../pending.js';

/** One limit as a store keeps it. Times are whole microseconds. */
export interface StoredLimit {
  /** Tells the limits of one key apart: the same for the same limit in every process. */
  readonly id: string;
  /** The time in which one unit comes back. */
  readonly interval: number;
  /** The time in which all units come back, when none is left: `interval` times the burst. */
  readonly capacity: number;
}

/** Asks for units of one key, of all its limits or of none. */
export interface TakeRequest {
  readonly key: string;
  readonly limits: readonly StoredLimit[];
  /** With fewer units left, the store takes none. */
  readonly least: number;
  /** The store takes up to this many: at least `least`. */
  readonly most: number;
}

export interface TakeAnswer {
  /** The units taken; 0 when there were fewer than `least`. */
  readonly granted: number;
  /** For each limit, in order: the microseconds until all of its units are back. */
  readonly used: readonly number[];
}

/** Counts one hit in a fixed window, and blocks the key when there are more than `limit`. Times in ms. */
export interface HitRequest {
  readonly key: string;
  /** The length of the window, which begins with its first hit. */
  readonly window: number;
  readonly limit: number;
  /** How long the key is blocked; 0: until the window ends. The next window begins after that. */
  readonly block: number;
}

export interface HitAnswer {
  /** Hits in the window; those while the key is blocked beyond it do not count. */
  readonly hits: number;
  /** Milliseconds until the window or the block ends. */
  readonly left: number;
  readonly blocked: boolean;
}

/** The counts of rate limits. A call that is sent twice counts twice: it allows fewer calls, never more. */
export interface RateLimitStore {
  take(request: TakeRequest): Pending<TakeAnswer>;
  /** As `used` of `TakeAnswer`, without taking. */
  peek(request: Pick<TakeRequest, 'key' | 'limits'>): Pending<readonly number[]>;
  /** Gives back all units of the limits. */
  reset(request: Pick<TakeRequest, 'key' | 'limits'>): Pending<unknown>;
  hit(request: HitRequest): Pending<HitAnswer>;
}
