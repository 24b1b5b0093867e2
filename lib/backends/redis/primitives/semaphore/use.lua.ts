import { semaphoreScript } from './semaphore-script.js';

/**
 * KEYS, for each semaphore: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the index of
 * its first key.
 * Returns for each call the number of permits of the last call, or 0 if none is stored, and how many are taken.
 */
export const SEMAPHORE_USE = semaphoreScript(
  `
  remember(s)
  return {whole(s.limit), redis.call('ZCOUNT', s.permits, '(' .. now_text, '+inf')}`,
  0,
);
