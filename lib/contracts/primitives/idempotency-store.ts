import type { Pending } from '../pending.js';

/**
 * What is known of an idempotency key.
 * - `running`: an attempt has begun. It may still run, or have died, failed or lost its lock.
 * - `value`, `undefined`: the result is kept; `payload` is the serialized value, if there is one.
 * - `error`: the method threw an error that is kept; `payload` describes it.
 * - `unkept`: the method ran, but its result could not be kept; `payload` says why.
 */
export type IdempotencyState = 'running' | 'value' | 'undefined' | 'error' | 'unkept';

/** What the store keeps under an idempotency key. */
export interface IdempotencyRecord {
  readonly state: IdempotencyState;
  /** The fencing token of the lock under which this attempt began. */
  readonly token: number;
  /** Counts the attempts that have begun, from 1. */
  readonly attempt: number;
  /** A digest of the request in hexadecimal digits; empty where none was given. */
  readonly fingerprint: string;
  readonly payload: Buffer;
}

/** An attempt begins. Its lock is held, with this fencing token. */
export interface BeginRequest {
  readonly key: string;
  readonly token: number;
  readonly fingerprint: string;
  /** Milliseconds for which the store remembers the attempt. */
  readonly ttl: number;
}

/** An attempt has ended, and its result is to be kept. */
export interface KeepResultRequest {
  readonly key: string;
  readonly record: Omit<IdempotencyRecord, 'payload'> & { readonly payload: string | Buffer };
  /** Milliseconds for which the store keeps the result. */
  readonly ttl: number;
  /** Whether to keep the result also if the store has forgotten the attempt. */
  readonly evenIfForgotten: boolean;
}

/** Keeps the results of idempotent methods. Every entry has an expiry. */
export interface IdempotencyStore {
  read(key: string): Pending<IdempotencyRecord | null>;

  /**
   * Notes that an attempt begins, and answers what it has noted: a record with the token of the request. Answers the
   * present record instead, unchanged, if it is not `running`, if its fingerprint differs from that of the request (an
   * empty one fits any), or if its token is larger. A repeated request gets the same answer.
   */
  begin(request: BeginRequest): Pending<IdempotencyRecord>;

  /**
   * Keeps the result of an attempt. `false`, and nothing changes, if another attempt has kept its result, or if one
   * with a larger token has begun. A repeated request gets the same answer.
   */
  keep(request: KeepResultRequest): Pending<boolean>;
}
