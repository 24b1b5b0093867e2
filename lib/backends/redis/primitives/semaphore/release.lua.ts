import { semaphoreScript } from './semaphore-script.js';

/**
 * Gives permits back, and grants them to those who wait. A ticket that waits leaves the queue.
 *
 * KEYS, for each call: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the ticket.
 * Returns for each call 1 if the ticket had permits whose lease had not ended, otherwise 0.
 */
export const RELEASE_PERMITS = semaphoreScript(
  `
  local ticket = ARGV[arg]
  local live = take_back(s, ticket)
  if not live then redis.call('ZREM', s.queue, ticket) end
  hand_out(s, {})
  return live and 1 or 0
`,
  1,
);
