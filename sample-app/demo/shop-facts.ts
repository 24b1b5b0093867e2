// What the demo knows of the shop beforehand: the words and numbers of its settings and its HTTP interface.

/** Ways to take pieces out of the stock, which the demo tries in turn. */
export const STRATEGIES = ['none', 'lock', 'fenced', 'pessimistic', 'optimistic', 'atomic'] as const;

/** With locks that have known faults, for the comparison of schemes and the live page. */
export const ALL_STRATEGIES = [...STRATEGIES, 'setnx', 'setnx-expiry'] as const;

export type Strategy = (typeof ALL_STRATEGIES)[number];

/** The stores in which the shop can keep its locks. */
export const LOCK_BACKENDS = [
  'redis',
  'redlock',
  'postgres',
  'postgres-advisory',
  'mysql',
  'mysql-get-lock',
  'etcd',
  'zookeeper',
] as const;

export type LockBackendName = (typeof LOCK_BACKENDS)[number];

/** What the shop builds on locks, and can do without. */
export const PRIMITIVES = [
  'once',
  'rate-limit',
  'semaphore',
  'read-write-lock',
  'scheduled-job',
  'leader-election',
] as const;

export type Primitive = (typeof PRIMITIVES)[number];

/** The lease of a lock in milliseconds, which the demo gives the shop as a setting. */
export const LOCK_TTL = 3_000;

/** How often one customer may order: `limit` times in `per` ms, and as often at once. */
export const ORDER_LIMIT = { limit: 20, per: 10_000 } as const;

/** How many payments the shop has under way at once, in all its processes together. */
export const PAYMENTS_AT_ONCE = 5;
