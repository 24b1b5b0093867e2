export const STRATEGIES = ['none', 'lock', 'fenced', 'pessimistic', 'optimistic', 'atomic'] as const;

export type Strategy = (typeof STRATEGIES)[number];
