/**
 * What a store knows of the values that it keeps: the first bytes of those that have an envelope are a version, flags,
 * and when they stop being fresh, in ms of the wall clock, base 36.
 */
export const HEADER = {
  version: 1,
  /** What the byte of flags begins at. */
  flags: 64,
  /** Flag: it is kept for longer than it is fresh. */
  keptStale: 8,
  /** Flag: it was expired softly, and is fresh no more whatever the clock says. */
  expired: 32,
  /** The most bytes that the header takes. */
  length: 16,
} as const;

/** The value as one that is stale since `now`, if it was not before; `undefined` for what has no envelope. */
export function expiredSoftly(data: Buffer, now: number): Buffer | undefined {
  const flags = (data[1] ?? 0) - HEADER.flags;
  const time = /^[0-9a-z]+/.exec(data.toString('latin1', 2, HEADER.length))?.[0];
  if (data[0] !== HEADER.version || time === undefined) return undefined;
  if (flags & HEADER.expired) return data;
  const kept = Math.min(parseInt(time, 36), now).toString(36);
  const first = Buffer.from([HEADER.version, HEADER.flags + (flags | HEADER.keptStale | HEADER.expired)]);
  return Buffer.concat([first, Buffer.from(kept), data.subarray(2 + time.length)]);
}
