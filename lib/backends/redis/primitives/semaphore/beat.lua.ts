import { semaphoreScript } from './semaphore-script.js';

/**
 * The heartbeat of a process with waiters: grants permits whose leases have ended, and answers what became of its
 * tickets, whose messages may have been lost. Never queues a ticket.
 *
 * KEYS, for each semaphore: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the index of
 * its first key, the process, the number of permits if none is stored, and the tickets, separated by spaces.
 * Returns for each call the ms until the next lease ends or -1, the last fencing token, then two numbers for each
 * ticket: the ms left of its grant, 0 if it waits, -1 if it is gone; and the fencing token of its grant, otherwise 0.
 */
export const SEMAPHORE_BEAT = semaphoreScript(
  `
  remember(s)
  if s.limit == 0 then set_limit(s, tonumber(ARGV[arg + 1])) end
  local asking = {}
  for ticket in string.gmatch(ARGV[arg + 2], '%S+') do asking[ticket] = true end
  touch(s, ARGV[arg])
  hand_out(s, asking)
  local answer = {next_end(s), 0}
  for ticket in string.gmatch(ARGV[arg + 2], '%S+') do
    local left = left_of(s, ticket)
    answer[#answer + 1] = left or (redis.call('ZSCORE', s.queue, ticket) and 0 or -1)
    answer[#answer + 1] = left and mint(s, left) or 0
  end
  answer[2] = s.token
  return answer
`,
  3,
);
