/** One name, for `inspect` and `forceRelease`. */
export interface NameRequest {
  /** Without the `prefix` of the module. */
  readonly name: string;
}

/** One name, and the ticket that owns it or asks for it. */
export interface TicketRequest extends NameRequest {
  /**
   * Identifies one attempt and is never used again. Other clients see it as the owner.
   */
  readonly ticket: string;
}

/** What the tickets of a process begin with, before a `:` and a number; the whole of an owner that is no ticket. */
export function processOf(ticket: string): string {
  const end = ticket.lastIndexOf(':');
  return end === -1 ? ticket : ticket.slice(0, end);
}

/** Reserves further tokens. */
export interface MintRequest extends TicketRequest {
  /** The first token must be at least this. */
  readonly leastToken: number;
}

/** Asks for the name. */
export interface AcquireRequest extends TicketRequest {
  /** The same in every request of a ticket; `read` only for a store with `downgrade`. Default `write`. */
  readonly mode?: 'read' | 'write' | undefined;
  /** The lease: whole milliseconds from the moment of the grant. */
  readonly ttl: number;
  /** The fencing token must be at least this. */
  readonly leastToken?: number | undefined;
  /** Whether the ticket asks again until it is granted or released: a store may note who waits, in which order. */
  readonly waits?: boolean;
}

/** Asks for several names, all or none, and does not wait for them. */
export interface AcquireSeveralRequest extends Omit<AcquireRequest, 'name' | 'waits'> {
  /** Two or more, sorted, without duplicates. */
  readonly names: readonly string[];
}

/** Asks for a longer lease. */
export interface RenewRequest extends TicketRequest {
  /** The lease: whole milliseconds from the moment of the renewal. */
  readonly ttl: number;
}

/** Releases the name. */
export interface ReleaseRequest extends TicketRequest {
  /** A ticket that asks for the name from now on: a store that notes who waits does so in the same step. */
  readonly again?: string;
}

/** Releases a name that stays taken until its minimum hold has ended. */
export interface KeepRequest extends TicketRequest {
  /** Whole milliseconds from the moment of the request. */
  readonly rest: number;
}

/** Consecutive fencing tokens that no other process gets. */
export interface TokenRange {
  readonly first: number;
  readonly count: number;
}

/** Further tokens of the ticket that owns the name. */
export interface Minted extends TokenRange {
  /** How many tickets of other processes wait for the name; absent where the store does not say. */
  readonly waiting?: number;
}

/** The ticket owns the name, or all of several. */
export interface Granted {
  readonly status: 'granted';
  readonly tokens: TokenRange;
  /**
   * Milliseconds of lease that the store has granted, from the moment of the grant. The store may grant less than the
   * `ttl` of the request. To a ticket that owned the name already: what is left of its lease, which the store may have
   * made longer.
   */
  readonly remaining: number;
  /** How many tickets of other processes wait for the name; `undefined` where the store cannot know. */
  readonly waiting: number | undefined;
}

/** Another ticket owns a name, or waits ahead for it. Only a queue at the store fills in the optional properties. */
export interface Busy {
  readonly status: 'busy';
  /** The owner; empty where the name is free and only others wait for it. */
  readonly owner: string;
  /** Milliseconds left of the owner's lease; `Infinity` where it has no expiry. */
  readonly remaining: number;
  /** Of several names, the first that was found taken. */
  readonly name?: string;
  /** A message with a token below this was sent for an earlier grant. Default 0. */
  readonly unissued?: number;
  /** Whether the ticket is the first in the queue. */
  readonly first?: boolean;
  /** Whether its turn cannot come soon: it may send its heartbeat less often. */
  readonly far?: boolean;
  /** Whether no message reaches its process, so that it must ask often. */
  readonly unreached?: boolean;
}

/** What `acquire` answers. */
export type AcquireAnswer = Granted | Busy;

/**
 * `remaining`: ms of lease from the renewal on: at least the `ttl` of the request where the store ends leases by `ttl`.
 * `waiting`: how many tickets wait in the backend's queue.
 */
export type RenewAnswer =
  | { readonly status: 'renewed'; readonly remaining: number; readonly waiting?: number }
  | { readonly status: 'not-owner' };

/**
 * - `released`: the ticket owned the name, which is free now.
 * - `gone`: it had no owner.
 * - `taken`: it had another owner.
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
  /** `readers` where tickets that read have the name. */
  readonly owner: string;
  /** How many tickets that read have the name; absent where an owner has it. */
  readonly readers?: number;
  /** The label of the owner's process; absent if it stored none. */
  readonly label?: string;
  /** Milliseconds left of the lease; `Infinity` where it has no expiry. */
  readonly ttl: number;
  /**
   * The newest token that was issued for this name or reserved for the holders of one process; `null` if there is none,
   * as for a key that a foreign client set.
   */
  readonly fencingToken: number | null;
  /** How many tickets wait for the name in the backend's own queue; 0 where it keeps none or cannot count them. */
  readonly waiting: number;
  /**
   * The first of the tickets that wait for the name, in their order, 100 at most, without those of processes that gave
   * no sign of life for longer than the queue allows. Absent where the backend keeps no queue or cannot tell the order.
   */
  readonly waiters?: readonly WaitingTicket[];
}

/** How many tickets `inspect` shows at most: a long queue must not keep other clients waiting. */
export const MOST_WAITERS = 100;

/** A ticket in the queue of a name. */
export interface WaitingTicket {
  readonly ticket: string;
  /** Default `write`. */
  readonly mode?: 'read' | 'write';
  /** The label of its process; absent if it stored none. */
  readonly label?: string;
}

/** Asks for one page of the names that have an owner. */
export interface ListRequest {
  /** A glob of Redis for the names: `*`, `?`, `[abc]`, and `\` before a literal character. */
  readonly pattern: string;
  /** What the page before returned; empty for the first one. */
  readonly cursor: string;
  /** About how many names a page has; also how many keys the store looks at in one step. */
  readonly limit: number;
}

/** One page of names. */
export interface ListedNames {
  /** Each name that had an owner from the first page to the last is on one page at least. */
  readonly names: readonly string[];
  /** Where the next page begins; empty after the last one. */
  readonly cursor: string;
}
