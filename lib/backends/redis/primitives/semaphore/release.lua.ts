import { semaphoreScript } from './semaphore-script.js';

/**
 * Gives permits back, and grants them to those who wait. A ticket that waits leaves the queue.
 *
 * KEYS, for each call: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the ticket.
 * Returns for each call a list: 1 if the ticket had permits whose lease had not ended, otherwise 0; then the tickets of
 * the same process that were granted permits by it, each with its fencing token. Other processes are sent a message.
 */
export const RELEASE_PERMITS = semaphoreScript(
  `
  local ticket = ARGV[arg]
  local live = take_back(s, ticket)
  if not live then redis.call('ZREM', s.queue, ticket) end
  local answer = {live and 1 or 0}
  hand_out(s, {}, ticket, answer)
  return answer
`,
  1,
);
