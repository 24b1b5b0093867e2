import type { ListedLock, LockWaiter } from '../lock/hold/lock.js';

/** A lock as JSON, which has no `Infinity`. Times are in ms. */
export interface LockFields {
  readonly name: string;
  /** Why the store does not tell the rest. */
  readonly error?: string;
  readonly owner: string;
  /** The label of the holder's process. */
  readonly label?: string;
  readonly host?: string;
  readonly pid?: number;
  readonly readers?: number;
  /** When the holder's process was granted the lock. */
  readonly since?: string;
  /** `null`: it never expires. */
  readonly ttl: number | null;
  readonly fencingToken: number | null;
  readonly waiting: number;
  /** The processes in the queue of the store, the next one first. */
  readonly waiters?: readonly LockWaiter[];
}

/** The default label: host name and process id. */
const HOST_AND_PID = /^(.+):(\d+)$/;
/** A ticket of this library; a foreign client sets another owner. */
const TICKET = /^.+:\d+$/;
/** The first token (µs) that is a time: tokens of some stores are counters. */
const FIRST_TIME = Date.UTC(2020) * 1_000;

export function fieldsOf({ key, ...info }: ListedLock): LockFields {
  const [, host, pid] = HOST_AND_PID.exec(info.label ?? '') ?? [];
  const since = grantedAt(info.owner, info.fencingToken);
  return {
    name: key,
    ...info,
    ...(host !== undefined && { host, pid: Number(pid) }),
    ...(since && { since: since.toISOString() }),
    ttl: endless(info.ttl),
  };
}

/** Redis and the tables of leases mint tokens from the time of the server in µs. */
function grantedAt(owner: string, token: number | null): Date | undefined {
  if (!TICKET.test(owner) || token === null || token < FIRST_TIME) return undefined;
  return new Date(token / 1_000);
}

/** JSON has no Infinity. */
export function endless(milliseconds: number): number | null {
  return milliseconds === Infinity ? null : Math.round(milliseconds);
}
