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
