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
 *   in µs by the clock of the store.
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
  /** Milliseconds after the call, from which on the store must refuse it: a newer value may have been stored since. */
  readonly within?: number;
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
