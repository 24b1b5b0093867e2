/** The lease that every peer is given, in ms: longer than any body, so that none needs to renew. */
export const LEASE = 10_000;

/** How long a caller waits for a busy lock, in ms. */
export const WAIT = 60_000;

/** The pace of the waiters (ms) where a peer leaves it to its user. */
export const RETRY = { delay: 50, jitter: 25 };
