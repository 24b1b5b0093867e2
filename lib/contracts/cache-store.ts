import type { StartRequest } from './start-request.js';
import type { Pending } from './pending.js';

/** Bytes under a key, as the cache wrote them; text goes out as a string, which clients send faster than a buffer. */
export type StoredData = string | Buffer;

/** One key. */
export interface KeyRequest {
  /** Without the prefix of the module. */
  readonly key: string;
}

/** One load of one key: a token of its own for each, so that no load can end another one's lease. */
export interface LoadRequest extends KeyRequest {
  readonly token: string;
}

export interface LeaseRequest extends LoadRequest {
  /** Milliseconds that the lease outlives a loader that died. */
  readonly lease: number;
  /** Asks for the lease although there is a value: to refresh it. */
  readonly refresh: boolean;
  /** What the value to refresh begins with: one that begins with something else is new, and a hit. */
  readonly seen?: StoredData | undefined;
  /** Waits for the end of another load: it is then told over the bus. */
  readonly waits: boolean;
}

/**
 * - `hit`: there is a value by now, to be read.
 * - `leased`: this load may store what it finds, until its lease ends or the key is invalidated. `at`: when that was,
 *   in µs by the clock of the store.
 * - `busy`: another load has the lease, for `remaining` ms at most; the end of it is told over the bus.
 * - `barrier`: a write is under way; what is read now must not be stored.
 */
export type LeaseAnswer =
  | { readonly status: 'hit' }
  | { readonly status: 'leased'; readonly at: number }
  | { readonly status: 'busy'; readonly remaining: number }
  | { readonly status: 'barrier' };

export interface CommitRequest extends LoadRequest {
  readonly data: StoredData;
  /** Milliseconds that the value is kept. */
  readonly ttl: number;
}

/** The deletion of one value, or its soft expiry. */
export interface InvalidateRequest extends KeyRequest {
  /** Keeps a value that has an envelope (see `HEADER`), stale since then, in ms of the wall clock. */
  readonly staleSince?: number;
  /** Also keeps loads from storing for `ttl` ms, or until `lift` names this token. */
  readonly barrier?: { readonly token: string; readonly ttl: number };
  /** Ends the barrier of this token. */
  readonly lift?: string;
}

/** A value that is stored whatever is loaded. */
export interface SetRequest extends KeyRequest {
  readonly data: StoredData;
  /** Milliseconds that the value is kept. */
  readonly ttl: number;
  /** Stores only where there is no value. */
  readonly ifAbsent?: boolean;
  /** Milliseconds from the call after which it must not be carried out any more: what was stored since may be newer. */
  readonly within?: number;
}

/** What tells whether a tag was invalidated since a value was stored. */
export interface TagVersion {
  /** When the tag was begun or last invalidated, in µs by the clock of the store; greater each time. */
  readonly version: number;
  /** It was never invalidated since it began. */
  readonly begun: boolean;
}

/**
 * The version of a tag; `null` where there is none. An object where it was expired softly: what was stored with a
 * version from `least` on, and before `version`, is stale.
 */
export type TagState = number | { readonly version: number; readonly least: number } | null;

/** What a process hears of the others; it hears of its own steps, too. */
export interface CacheListener {
  /** What is known of the key may be old. */
  onInvalidated(key: string): void;
  /** The load that `busy` told of has ended, with or without a value. */
  onLoadEnded(key: string): void;
  /** What is known of keys with this tag may be old. */
  onTagInvalidated(tag: string): void;
  /** What is known of keys with this prefix may be old; '' stands for all. */
  onPrefixInvalidated(prefix: string): void;
  /** Deletions fall due in `delay` ms. */
  onDeletionScheduled(delay: number): void;
  /** From now on messages may be missed. */
  onDisconnected(): void;
  /** From now on messages are heard; some may have been missed before. */
  onConnected(): void;
}

/** What a store tells of its values itself, whoever changed them. */
export interface CacheTracker {
  /** The value of the key was changed, has expired or was evicted. */
  onChanged(key: string): void;
  /** All values may have been. */
  onAllChanged(): void;
  /** From now on every change is told; some may have been missed before. */
  onTracked(): void;
  /** From now on changes may be missed. `why`: the store refuses to tell of them. */
  onUntracked(why?: Error): void;
}

/** Deletes in batches, so that other clients are served between them. */
export interface DeleteMatchingRequest {
  /** Deletes keys that begin with it, or that match a glob of Redis. */
  readonly match: { readonly prefix: string } | { readonly pattern: string };
  /** How many keys to look at in one step. */
  readonly batch: number;
  /** Which keys are left although they match; asked right before each is deleted. */
  readonly spares?: (key: string) => boolean;
}

/**
 * Where cached values are kept, and the steps that must be atomic there. Each step may be sent twice. The cache bounds
 * every call in time; one that it gave up on may still be carried out later.
 */
export interface CacheStore {
  readonly name: string;
  /** What keeps it from doing what is promised, as it is set up; logged at the start. */
  readonly caveat?: string | undefined;
  readonly sets: CacheSets;
  readonly expiringSets: CacheExpiringSets;
  readonly bits: CacheBits;
  readonly deletions: ScheduledDeletions;

  /** Starts to listen; messages come until `close`. */
  listen(listener: CacheListener): void;

  /** Starts to tell of changes to values, until `close`. Absent where the store cannot. */
  track?(tracker: CacheTracker): void;

  /** `null` when there is none. Calls of one turn may share a round trip. */
  read(key: string): Pending<Buffer | null>;
  /** Asks for leave to load the key, and to store what is found. */
  lease(request: LeaseRequest): Pending<LeaseAnswer>;
  /**
   * Stores the value and ends the lease; `false` when the lease is not this load's any more: then nothing is stored.
   */
  commit(request: CommitRequest): Pending<boolean>;
  /** Lets the lease run for at least so long from now; `false` when it is not this load's any more. */
  renew(request: LoadRequest & { readonly lease: number }): Pending<boolean>;
  /** Ends the lease without a value, if it is this load's. */
  release(request: LoadRequest): Pending<void>;

  /**
   * Deletes the value or lets it be stale, takes the lease from whoever loads, and tells everybody. Answers whether
   * there was one.
   */
  invalidate(request: InvalidateRequest): Pending<boolean>;
  /** As `invalidate`, and answers the value; `null` when there was none, also where it is sent twice. */
  take(key: string): Pending<Buffer | null>;
  /** Lets the barrier run for at least so long from now; `false` when it had ended. */
  renewBarrier(request: KeyRequest & { readonly token: string; readonly ttl: number }): Pending<boolean>;

  /**
   * As `invalidate`, with a new value; `false` when `ifAbsent` found one, or a barrier stands; 'late' when it was not
   * in time.
   */
  set(request: SetRequest): Pending<boolean | 'late'>;
  /** Adds to the number under the key, which begins at 0 and then lives for `ttl` ms, `Infinity` for without end. */
  increment(request: KeyRequest & { readonly by: number; readonly ttl: number }): Pending<number>;
  /** `false` when there is no value. */
  expire(request: KeyRequest & { readonly ttl: number }): Pending<boolean>;
  /** Milliseconds left of the value; `null` when there is none, `Infinity` where it has no end. */
  ttl(key: string): Pending<number | null>;

  /** The version of each tag, which begins one where there is none, and keeps it for at least `ttl` ms more. */
  beginTags(tags: readonly string[], ttl: number): Pending<readonly TagVersion[]>;
  /** The version of each tag as it is, without beginning one. */
  readTags(tags: readonly string[]): Pending<readonly TagState[]>;
  /**
   * When any tag was invalidated last, in µs by the clock of the store; `null` where that is not remembered. It tells
   * that a tag which has just begun was not invalidated, and forgotten, before.
   */
  lastTagInvalidation(): Pending<number | null>;
  /** Gives the tag a version that it never had, and tells everybody. `softly`: what has had the one before is stale. */
  invalidateTag(tag: string, softly?: boolean): Pending<void>;

  /** Answers how many values were deleted. Whatever was being loaded when it began is not stored. */
  deleteMatching(request: DeleteMatchingRequest): Promise<number>;

  /**
   * Called at start-up, once, also while the store is away. Rejects when it cannot serve, with one line that names the
   * server, the cause and the remedy; reports what it can serve with all the same.
   */
  start?(request: StartRequest): Promise<void>;
  /** Rejects when the store cannot serve. */
  ping(): Pending<unknown>;
  /** Why a call failed with `error`, or got no answer: names the server, the cause and the remedy. */
  diagnose?(error?: unknown): Error | undefined;
  /** No message comes any more, and no call is answered. */
  close(): void;
}

/** Sets of strings. */
export interface CacheSets {
  /** Answers how many are new. `ttl` (ms, `Infinity` for no end) counts anew for the whole set. */
  add(key: string, members: readonly string[], ttl: number): Pending<number>;
  /** Answers how many there were. */
  remove(key: string, members: readonly string[]): Pending<number>;
  /** Whether it is in the set. */
  has(key: string, member: string): Pending<boolean>;
  /** In any order; none where there is no set. */
  members(key: string): Pending<readonly string[]>;
}

/**
 * Sets of strings of which each lives for a time of its own, by the clock of the store. Each call drops what has
 * expired.
 */
export interface CacheExpiringSets {
  /** Answers how many are new; those that are not live for `ttl` ms from now. */
  add(key: string, members: readonly string[], ttl: number): Pending<number>;
  /** Answers how many there were. */
  remove(key: string, members: readonly string[]): Pending<number>;
  /** Whether it is in the set, and has not expired. */
  has(key: string, member: string): Pending<boolean>;
  /** Those that have not expired. */
  members(key: string): Pending<readonly string[]>;
  /** How many have not expired. */
  size(key: string): Pending<number>;
}

/**
 * Plain bits, for Bloom filters. What is under a key is whole: a rebuild put it there that ran to its end, and `add`
 * begins nothing. Where there is nothing, nothing is known.
 */
export interface CacheBits {
  /** Sets the bits, also in what is being rebuilt. Where there is nothing, it does nothing. */
  add(request: BitsRequest & { readonly positions: readonly number[] }): Pending<void>;
  /**
   * For each list of positions, all of one length, whether all those bits are set; `null` when there is nothing under
   * the key.
   */
  has(request: BitsRequest & { readonly lists: readonly (readonly number[])[] }): Pending<readonly boolean[] | null>;
  /** Begins to rebuild, with `size` bits of which none is set; `false` when another rebuild is under way. */
  beginRebuild(request: RebuildRequest & { readonly size: number }): Pending<boolean>;
  /** Sets bits in what is being rebuilt; `false` when that is lost. */
  addToRebuild(request: RebuildRequest & { readonly positions: readonly number[] }): Pending<boolean>;
  /** Puts what was rebuilt in the place of what is under the key; `false` when it is lost. */
  finishRebuild(request: BitsRequest & { readonly token: string }): Pending<boolean>;
  /** Gives up what is being rebuilt, if it is this token's. */
  dropRebuild(request: KeyRequest & { readonly token: string }): Pending<void>;
  /** Deletes what is under the key, and what is being rebuilt. */
  clear(key: string): Pending<void>;
}

/** Bits that are asked or set. */
export interface BitsRequest extends KeyRequest {
  /** Milliseconds that the bits are kept, at least half of it from now. */
  readonly ttl: number;
}

/** Bits that are being rebuilt. */
export interface RebuildRequest extends KeyRequest {
  readonly token: string;
  /** Milliseconds from now after which the rebuild is lost, unless it goes on. */
  readonly lease: number;
}

/** Deletions that are to happen later, whatever becomes of the process that asked for them. */
export interface ScheduledDeletions {
  /** In `delay` ms by the clock of the store; a later time takes the place of an earlier one. */
  schedule(keys: readonly string[], delay: number): Pending<void>;
  /**
   * The keys that are due, at most `limit`. They are nobody else's for `claim` ms, then due again unless `done`.
   * `next`: milliseconds until the next one is due, `null` when there is none.
   */
  claim(limit: number, claim: number): Pending<{ readonly keys: readonly string[]; readonly next: number | null }>;
  /** Forgets those that nobody scheduled anew since they were claimed. */
  done(keys: readonly string[]): Pending<void>;
}
