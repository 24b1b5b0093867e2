/** One name, for `inspect` and `forceRelease`. */
export interface NameRequest {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  readonly name: string;
}

/** The label of a process. */
export interface LabelRequest {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  /** What the tickets of the process begin with, before a `:` and a number. */
  readonly process: string;
  readonly label: string;
  /** How long the backend keeps the label: whole milliseconds. */
  readonly ttl: number;
}

/** Names and the ticket that owns or is to own them. */
export interface TicketRequest {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  /** At least one, sorted, without duplicates. */
  readonly names: readonly string[];
  /** Identifies one attempt and is never used again. Other clients see it as the owner. */
  readonly ticket: string;
}

/** Asks for the names, all or none. */
export interface AcquireRequest extends TicketRequest {
  /** The lease: whole milliseconds from the moment of the grant. */
  readonly ttl: number;
  /** The fencing token must be at least this. */
  readonly leastToken?: number;
}

/** Asks for a longer lease. */
export interface RenewRequest extends TicketRequest {
  /** The lease: whole milliseconds from the moment of the renewal. */
  readonly ttl: number;
}

/** Releases names that are to stay taken for a minimum hold. */
export interface KeepRequest extends TicketRequest {
  /** Whole milliseconds from the moment of the request. */
  readonly rest: number;
}

/** Granted, with the fencing token; or busy, with what the backend knows of the owner. */
export type AcquireAnswer =
  | { readonly granted: true; readonly fencingToken: number }
  | {
      readonly granted: false;
      /** The first name found taken, its owner, and the ms left of that lease (`Infinity`: no expiry). */
      readonly name: string;
      readonly owner: string;
      readonly remaining: number;
    };

/**
 * `remaining`: ms of lease from the renewal on, at least the `ttl` asked for. `waiting`: how many tickets wait in the
 * backend's queue.
 */
export type RenewAnswer =
  | { readonly status: 'renewed'; readonly remaining: number; readonly waiting?: number }
  | { readonly status: 'not-owner' };

/**
 * - `released`: the ticket owned all names, and they are free now.
 * - `gone`: one or more had no owner.
 * - `taken`: one or more had another owner.
 *
 * `resent`: the client library may have sent the request more than once, so that `gone` or `taken` may be the effect of
 * the first send.
 */
export interface ReleaseAnswer {
  readonly status: 'released' | 'gone' | 'taken';
  readonly resent: boolean;
}

/** Who owns a name. */
export interface LockState {
  readonly owner: string;
  /** The label of the owner's process; absent if it stored none. */
  readonly label?: string;
  /** Milliseconds left of the lease; `Infinity` where it has no expiry. */
  readonly ttl: number;
  /**
   * The newest token that was issued for this name or reserved for the holders of one process; `null` if there is none,
   * as for a key that a foreign client set.
   */
  readonly fencingToken: number | null;
  /** How many tickets wait for the name in the backend's own queue; 0 if it keeps none. */
  readonly waiting: number;
}
