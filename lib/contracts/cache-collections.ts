import type { KeyRequest } from './cache-requests.js';
import type { Pending } from './pending.js';

/** Sets of strings. */
export interface CacheSets {
  /** Resolves to how many are new. `ttl` (ms; `Infinity`: never) begins anew for the whole set. */
  add(key: string, members: readonly string[], ttl: number): Pending<number>;
  /** Resolves to how many of them were in the set. */
  remove(key: string, members: readonly string[]): Pending<number>;
  /** Whether it is in the set. */
  has(key: string, member: string): Pending<boolean>;
  /** In any order; empty when there is no set. */
  members(key: string): Pending<readonly string[]>;
}

/**
 * Sets of strings in which each member expires by itself, by the clock of the store. Each call removes the expired
 * members.
 */
export interface CacheExpiringSets {
  /** Resolves to how many are new; all given members expire `ttl` ms from now. */
  add(key: string, members: readonly string[], ttl: number): Pending<number>;
  /** Resolves to how many of them were in the set. */
  remove(key: string, members: readonly string[]): Pending<number>;
  /** Whether it is in the set, and has not expired. */
  has(key: string, member: string): Pending<boolean>;
  /** The members that have not expired. */
  members(key: string): Pending<readonly string[]>;
  /** How many have not expired. */
  size(key: string): Pending<number>;
}

/**
 * Plain bits, for Bloom filters. The bits under a key are always complete: only a rebuild that ran to its end puts them
 * there, and `add` does not create them. Without bits, the filter knows nothing.
 */
export interface CacheBits {
  /** Sets the bits, also in a rebuild under way. Does nothing when there are no bits under the key. */
  add(request: BitsRequest & { readonly positions: readonly number[] }): Pending<void>;
  /**
   * For each list of positions, all of one length, whether all those bits are set; `null` when there are no bits under
   * the key.
   */
  has(request: BitsRequest & { readonly lists: readonly (readonly number[])[] }): Pending<readonly boolean[] | null>;
  /** Begins a rebuild with `size` bits, none of them set; `false` when another rebuild is under way. */
  beginRebuild(request: RebuildRequest & { readonly size: number }): Pending<boolean>;
  /** Sets bits in the rebuild; `false` when it is lost. */
  addToRebuild(request: RebuildRequest & { readonly positions: readonly number[] }): Pending<boolean>;
  /** Replaces the bits under the key by the rebuilt ones; `false` when the rebuild is lost. */
  finishRebuild(request: BitsRequest & { readonly token: string }): Pending<boolean>;
  /** Gives up the rebuild, if it has this token. */
  dropRebuild(request: KeyRequest & { readonly token: string }): Pending<void>;
  /** Deletes the bits under the key and a rebuild under way. */
  clear(key: string): Pending<void>;
}

/** The bits under one key. */
export interface BitsRequest extends KeyRequest {
  /** Milliseconds until the bits expire; they last at least half of it from now. */
  readonly ttl: number;
}

/** A rebuild under way. */
export interface RebuildRequest extends KeyRequest {
  readonly token: string;
  /** Milliseconds from now after which the rebuild is lost, unless it makes progress. */
  readonly lease: number;
}
