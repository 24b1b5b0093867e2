/** What the shop builds on locks, by the names that the demo shows. */
export const PRIMITIVES = [
  'once',
  'rate-limit',
  'semaphore',
  'read-write-lock',
  'scheduled-job',
  'leader-election',
] as const;

export type Primitive = (typeof PRIMITIVES)[number];

/**
 * The primitives keep their state in the Redis of the shop, wherever its locks are: most need Redis, and the others
 * stay beside them.
 */
export const PRIMITIVE_BACKEND = 'redis';
