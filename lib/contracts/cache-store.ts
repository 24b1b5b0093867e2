import type { Pending, StoreContext } from './store.js';

/**
 * What a store must do to keep cached values. Each method is one atomic step, and may be sent twice. The cache limits
 * every call in time; the store may still carry out a call that the cache gave up.
 */
export interface CacheStore {
  readonly name: string;
  /** What the store cannot guarantee in its present configuration; logged at start-up. */
  readonly caveat?: string | undefined;
  /**
   * Grows when requests without an answer may have been sent again: the store may then carry out an earlier copy of one
   * after it has answered. Absent if that cannot be.
   */
  readonly resends?: number;
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
   * Resolves to the value; asks for the load lease where there is none, in the same step. `hit` only where there is
   * something that is no value. Absent if the store cannot: then the cache reads first.
   */
  readOrLease?(request: Omit<LeaseRequest, 'refresh' | 'seen'>): Pending<Buffer | LeaseAnswer>;
  /**
   * Stores the value and ends the lease; `false`, and nothing is stored, when this load does not have the lease.
   */
  commit(request: CommitRequest): Pending<boolean>;
  /** Makes the lease last for at least `lease` ms from now; `false` when this load does not have it. */
  renew(request: LoadRequest & { readonly lease: number }): Pending<boolean>;
  /**
   * Ends the lease without a value, if this load has it. `outdated`: the load has found out that the stored value is
   * out of date, so that is deleted in the same step, with the message of an invalidation.
   */
  release(request: LoadRequest & { readonly outdated?: boolean }): Pending<void>;

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
   * As `invalidate`, and stores a value; `false` if `ifAbsent` found a value other than `over`, or if there is a
   * barrier; 'late' if `within` had passed.
   */
  set(request: SetRequest): Pending<boolean | 'late'>;
  /** Adds to the number under the key. It begins at 0 and then expires after `ttl` ms; `Infinity`: never. */
  increment(request: KeyRequest & { readonly by: number; readonly ttl: number }): Pending<number>;
  /**
   * Lets the value end `ttl` ms from now; `false` when there is none. One that is kept for longer than it is fresh (see
   * `HEADER`) stays fresh until then, if that is later than before, and is kept for as long after it: see `prolonged`.
   */
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
  start?(request: StoreContext): Promise<void>;
  /** Rejects when the store cannot serve. */
  ping(): Pending<unknown>;
  /** Why a call failed with `error`, or got no answer: names the server, the cause and the remedy. */
  diagnose?(error?: unknown): Error | undefined;
  /** Ends messages and calls. */
  close(): void;
}

/** The bytes under a key, as the cache wrote them. Text is a string, which clients send faster than a buffer. */
export type StoredData = string | Buffer;

/** One key. */
export interface KeyRequest {
  /** Without the prefix of the module. */
  readonly key: string;
}

/** One load of one key. Each load has a token of its own, so that it cannot end the load lease of another. */
export interface LoadRequest extends KeyRequest {
  readonly token: string;
}

export interface LeaseRequest extends LoadRequest {
  /** Milliseconds until the load lease ends, unless the loader renews it. */
  readonly lease: number;
  /** Asks for the lease although there is a value, to refresh it. */
  readonly refresh: boolean;
  /** The first bytes of the value to refresh. A value that begins with other bytes is new, and a hit. */
  readonly seen?: StoredData | undefined;
  /** Asks for a message when another load ends, if one has the lease. */
  readonly waits: boolean;
}

/**
 * - `hit`: there is a value now; read it.
 * - `leased`: this load may store its result until its lease ends or the key is invalidated. `at`: when it was granted,
 *   in µs. Each later invalidation of a tag has a greater time, and no earlier one has, also where the clock steps
 *   back.
 * - `busy`: another load has the lease for at most `remaining` ms; a message reports its end.
 * - `barrier`: a write is under way; the result of a load must not be stored.
 */
export type LeaseAnswer =
  | { readonly status: 'hit' }
  | { readonly status: 'leased'; readonly at: number }
  | { readonly status: 'busy'; readonly remaining: number }
  | { readonly status: 'barrier' };

export interface CommitRequest extends LoadRequest {
  readonly data: StoredData;
  /** Milliseconds until the value expires. */
  readonly ttl: number;
}

/** The deletion of one value, or its soft expiry. */
export interface InvalidateRequest extends KeyRequest {
  /** Keeps a value that has an envelope (see `HEADER`) and marks it stale since then, in ms of the wall clock. */
  readonly staleSince?: number;
  /** Also sets a barrier: no load stores anything for `ttl` ms, or until `lift` names this token. */
  readonly barrier?: { readonly token: string; readonly ttl: number };
  /** Ends the barrier of this token. */
  readonly lift?: string;
}

/** A value that is stored by hand: loads under way do not overwrite it. */
export interface SetRequest extends KeyRequest {
  readonly data: StoredData;
  /** Milliseconds until the value expires. */
  readonly ttl: number;
  /** Stores only if there is no value. */
  readonly ifAbsent?: boolean;
  /** With `ifAbsent`: a value that counts as none, so that it is replaced; no other value is. */
  readonly over?: Buffer;
  /** Milliseconds after the call, from which on the store must refuse it: a newer value may have been stored since. */
  readonly within?: number;
}

/** Deletes in batches, between which the store serves other clients. */
export interface DeleteMatchingRequest {
  /** Deletes keys that begin with it, or that match a glob of Redis. */
  readonly match: { readonly prefix: string } | { readonly pattern: string };
  /** How many keys to look at in one step. */
  readonly batch: number;
  /** Returns `true` for a key that must not be deleted although it matches; called right before each deletion. */
  readonly spares?: (key: string) => boolean;
}

/** What is stored about one key. */
export interface KeyState {
  readonly value: StoredValueState | null;
  /** Milliseconds that are left of the load lease; `null` when no load has it. */
  readonly lease: number | null;
  /** Whether a write is under way, so that loads store nothing. */
  readonly barrier: boolean;
}

/** A stored value, without its payload. */
export interface StoredValueState {
  /** What it begins with, up to and with its first line feed: its envelope, if it has one. */
  readonly head: Buffer;
  /** The size of all that is stored under the key. */
  readonly bytes: number;
  /** Milliseconds until it expires; `Infinity` if it never does. */
  readonly ttl: number;
}

/** The version of a tag. A value stored with another version was invalidated since. */
export interface TagVersion {
  /** When the tag was begun or last invalidated, in µs by the clock of the store; greater each time. */
  readonly version: number;
  /** Whether it was never invalidated since it began. */
  readonly begun: boolean;
}

/**
 * The version of a tag; `null` if there is none. An object if the tag was expired softly: values stored with a version
 * of at least `least` and below `version` are stale.
 */
export type TagState = number | { readonly version: number; readonly least: number } | null;

/** Receives the messages of all processes, this one included. */
export interface CacheListener {
  /** The value of the key may have changed. */
  onInvalidated(key: string): void;
  /** The load that `busy` reported has ended, with or without a value. */
  onLoadEnded(key: string): void;
  /** Values with this tag may have changed. */
  onTagInvalidated(tag: string): void;
  /** Values under keys with this prefix may have changed; '' stands for all keys. */
  onPrefixInvalidated(prefix: string): void;
  /** Scheduled deletions are due in `delay` ms. */
  onDeletionScheduled(delay: number): void;
  /** Messages may be lost from now on. */
  onDisconnected(): void;
  /** Messages arrive from now on; some may have been lost before. */
  onConnected(): void;
}

/** Receives the changes that the store itself reports, also those by clients that do not use this library. */
export interface CacheTracker {
  /** The value of the key was changed, has expired or was evicted. */
  onChanged(key: string): void;
  /** Any value may have changed. */
  onAllChanged(): void;
  /** The store reports every change from now on; some may have been missed before. */
  onTracked(): void;
  /** Changes may be missed from now on. `why`: the error with which the store refused to report them. */
  onUntracked(why?: Error): void;
}

/** Deletions that are due later, and outlive the process that scheduled them. The cache gives each a name. */
export interface ScheduledDeletions {
  /**
   * Makes the deletions due in `delay` ms by the clock of the store. Of two times for one name, the later one counts.
   */
  schedule(names: readonly string[], delay: number): Pending<void>;
  /**
   * The deletions that are due, at most `limit`. No other process gets them for `claim` ms; then they are due again,
   * unless `done`.
   * `next`: milliseconds until the next one is due, `null` when there is none.
   */
  claim(limit: number, claim: number): Pending<{ readonly names: readonly string[]; readonly next: number | null }>;
  /** Makes the claims end `claim` ms from now, except for deletions that were scheduled again since the claim. */
  renew(names: readonly string[], claim: number): Pending<void>;
  /** Forgets the deletions, except those that were scheduled again since the claim. */
  done(names: readonly string[]): Pending<void>;
}

/** A `LockBackend` that can also keep cached values, in the same place as the locks. */
export interface CacheStoreProvider {
  /** Opens the store of one module. The module closes it before it closes the backend. */
  openCacheStore(prefix: string | undefined): CacheStore;
}

/** Whether a lock backend can also keep the cache of its module. */
export function isCacheStoreProvider(backend: object): backend is CacheStoreProvider {
  return typeof (backend as Partial<CacheStoreProvider>).openCacheStore === 'function';
}

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

/**
 * What a store knows about the values that it keeps. A value with an envelope begins with a version, flags, and the end
 * of its freshness: in ms of the wall clock, base 36.
 */
export const HEADER = {
  version: 1,
  /** The byte of flags, without any flag. */
  flags: 64,
  /** Flag: it is kept for longer than it is fresh. */
  keptStale: 8,
  /** Flag: it was expired softly, and is stale whatever the clock says. */
  expired: 32,
  /** The most bytes that the header takes. */
  length: 16,
} as const;

/** The value, marked as stale since `now` unless it was stale before; `undefined` if it has no envelope. */
export function expiredSoftly(data: Buffer, now: number): Buffer | undefined {
  const flags = (data[1] ?? 0) - HEADER.flags;
  const time = /^[0-9a-z]+/.exec(data.toString('latin1', 2, HEADER.length))?.[0];
  if (data[0] !== HEADER.version || time === undefined) return undefined;
  if (flags & HEADER.expired) return data;
  const kept = Math.min(parseInt(time, 36), now).toString(36);
  const first = Buffer.from([HEADER.version, HEADER.flags + (flags | HEADER.keptStale | HEADER.expired)]);
  return Buffer.concat([first, Buffer.from(kept), data.subarray(2 + time.length)]);
}

/**
 * The value as it is stored to be fresh until `ends`, in ms of the wall clock, and for how long it is kept stale before
 * that, if it ends `left` ms from `now`. `undefined` where only its time to live changes.
 */
export function prolonged(data: Buffer, ends: number, left: number, now: number): [Buffer, stale: number] | undefined {
  const flags = (data[1] ?? 0) - HEADER.flags;
  const time = /^[0-9a-z]+/.exec(data.toString('latin1', 2, HEADER.length))?.[0];
  if (data[0] !== HEADER.version || time === undefined) return undefined;
  const before = parseInt(time, 36);
  if ((flags & HEADER.keptStale) === 0 || (flags & HEADER.expired) !== 0 || ends <= before) return undefined;
  const value = Buffer.concat([data.subarray(0, 2), Buffer.from(ends.toString(36)), data.subarray(2 + time.length)]);
  return [value, Math.max(0, left - (before - now))];
}
