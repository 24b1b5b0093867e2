import type { CacheBits, CacheExpiringSets, CacheSets } from './cache-collections.js';
import type { CacheListener, CacheTracker } from './cache-listener.js';
import type {
  CommitRequest,
  InvalidateRequest,
  KeyRequest,
  KeyState,
  LeaseAnswer,
  LeaseRequest,
  LoadRequest,
  SetRequest,
  TagState,
  TagVersion,
} from './cache-requests.js';
import type { Pending } from './pending.js';
import type { ScheduledDeletions } from './scheduled-deletions.js';
import type { StartRequest } from './start-request.js';

export type * from './cache-collections.js';
export type * from './cache-listener.js';
export type * from './cache-requests.js';
export type * from './scheduled-deletions.js';

/** Deletes in batches, between which the store serves other clients. */
export interface DeleteMatchingRequest {
  /** Deletes keys that begin with it, or that match a glob of Redis. */
  readonly match: { readonly prefix: string } | { readonly pattern: string };
  /** How many keys to look at in one step. */
  readonly batch: number;
  /** Returns `true` for a key that must not be deleted although it matches; called right before each deletion. */
  readonly spares?: (key: string) => boolean;
}

/**
 * What a store must do to keep cached values. Each method is one atomic step, and may be sent twice. The cache limits
 * every call in time; the store may still carry out a call that the cache gave up.
 */
export interface CacheStore {
  readonly name: string;
  /** What the store cannot guarantee in its present configuration; logged at start-up. */
  readonly caveat?: string | undefined;
  readonly sets: CacheSets;
  readonly expiringSets: CacheExpiringSets;
  readonly bits: CacheBits;
  readonly deletions: ScheduledDeletions;

  /** Starts to listen; messages arrive until `close`. */
  listen(listener: CacheListener): void;

  /** Starts to report changes to values, until `close`. Absent if the store cannot. */
  track?(tracker: CacheTracker): void;

  /** `null` when there is none. Calls in one turn of the event loop may share a round trip. */
  read(key: string): Pending<Buffer | null>;
  /** Asks for the load lease of the key. */
  lease(request: LeaseRequest): Pending<LeaseAnswer>;
  /**
   * Stores the value and ends the lease; `false`, and nothing is stored, when this load does not have the lease.
   */
  commit(request: CommitRequest): Pending<boolean>;
  /** Makes the lease last for at least `lease` ms from now; `false` when this load does not have it. */
  renew(request: LoadRequest & { readonly lease: number }): Pending<boolean>;
  /** Ends the lease without a value, if this load has it. */
  release(request: LoadRequest): Pending<void>;

  /**
   * Deletes the value or marks it stale, ends the load lease, and sends a message to all processes. Resolves to
   * whether there was a value.
   */
  invalidate(request: InvalidateRequest): Pending<boolean>;
  /** As `invalidate`, but resolves to the value; `null` when there was none, also when the call is sent twice. */
  take(key: string): Pending<Buffer | null>;
  /** Makes the barrier last for at least `ttl` ms from now; `false` when it had ended. */
  renewBarrier(request: KeyRequest & { readonly token: string; readonly ttl: number }): Pending<boolean>;

  /**
   * As `invalidate`, and stores a value; `false` if `ifAbsent` found a value, or if there is a barrier; 'late' if
   * `within` had passed.
   */
  set(request: SetRequest): Pending<boolean | 'late'>;
  /** Adds to the number under the key. It begins at 0 and then expires after `ttl` ms; `Infinity`: never. */
  increment(request: KeyRequest & { readonly by: number; readonly ttl: number }): Pending<number>;
  /** `false` when there is no value. */
  expire(request: KeyRequest & { readonly ttl: number }): Pending<boolean>;
  /** Milliseconds until the value expires; `null` when there is none, `Infinity` if it never does. */
  ttl(key: string): Pending<number | null>;

  /** What is stored about the key. Reads no payload, and changes nothing. */
  inspect(key: string): Pending<KeyState>;

  /** The version of each tag, kept for at least `ttl` ms more. A tag without one gets its first. */
  beginTags(tags: readonly string[], ttl: number): Pending<readonly TagVersion[]>;
  /** The version of each tag; does not give one to a tag that has none. */
  readTags(tags: readonly string[]): Pending<readonly TagState[]>;
  /**
   * When any tag was last invalidated, in µs by the clock of the store; `null` if the store does not remember it. Shows
   * whether a tag that has just begun may have been invalidated, and forgotten, before.
   */
  lastTagInvalidation(): Pending<number | null>;
  /** Gives the tag a new version and sends a message. `softly`: values with the version before become stale. */
  invalidateTag(tag: string, softly?: boolean): Pending<void>;

  /** Resolves to how many values were deleted. Loads that were under way when it began store nothing. */
  deleteMatching(request: DeleteMatchingRequest): Promise<number>;

  /**
   * Called once at start-up, even if the store cannot be reached. Rejects if it cannot serve, with one line that names
   * the server, the cause and the remedy; reports what limits it without stopping it.
   */
  start?(request: StartRequest): Promise<void>;
  /** Rejects when the store cannot serve. */
  ping(): Pending<unknown>;
  /** Why a call failed with `error`, or got no answer: names the server, the cause and the remedy. */
  diagnose?(error?: unknown): Error | undefined;
  /** Ends messages and calls. */
  close(): void;
}
