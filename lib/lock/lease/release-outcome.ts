/**
 * `unconfirmed`: the backend did not answer the first request; it is repeated in the background until the lease ends.
 */
export type ReleaseOutcome = 'released' | 'gone' | 'taken' | 'unconfirmed';

/** The outcome of a release that needed no request. */
export const RELEASED = Promise.resolve<ReleaseOutcome>('released');
