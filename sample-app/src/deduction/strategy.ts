/** Those that the shop offers, and the demo tries in turn. */
export const STRATEGIES = ['none', 'lock', 'fenced', 'pessimistic', 'optimistic', 'atomic'] as const;

/** Locks with known faults, for the comparison of schemes. */
const NAIVE_STRATEGIES = ['setnx', 'setnx-expiry'] as const;

export const ALL_STRATEGIES = [...STRATEGIES, ...NAIVE_STRATEGIES] as const;

export type Strategy = (typeof ALL_STRATEGIES)[number];
