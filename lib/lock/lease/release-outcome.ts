/**
 * `unconfirmed`: the backend did not answer the first request; it is repeated in the background until the lease ends.
 */
export type ReleaseOutcome = 'released' | 'gone' | 'taken' | 'unconfirmed';

/** The outcome of a release that needed no request. */
export const RELEASED = Promise.resolve<ReleaseOutcome>('released');

/** The outcome of both: one lease that was gone or taken decides, else one whose release nobody has confirmed. */
export async function worseOf(one: Promise<ReleaseOutcome>, other: Promise<ReleaseOutcome>): Promise<ReleaseOutcome> {
  const both = await Promise.all([one, other]);
  const lost = both.find((outcome) => outcome === 'gone' || outcome === 'taken');
  return lost ?? (both.includes('unconfirmed') ? 'unconfirmed' : 'released');
}
