import { latchScript } from './latch-script.js';

/** How long (ms) a process gets the message of the opening without asking again: several times its period. */
const INTEREST = 5_000;

/**
 * Reads the state of a latch, and notes a process that wants to be told when it opens.
 *
 * KEYS, for each call: count, arrivals, waiting. ARGV: 1 the text with which channels begin; then for each call the
 * process, or an empty text. Returns for each call the count (0 if there is no such latch) and how many arrivals are
 * missing. A process may wait for a latch that does not exist yet.
 */
export const LOOK_AT_LATCH = latchScript(
  `
  local missing = l.missing()
  if ARGV[arg] ~= '' and (l.count == 0 or missing > 0) then
    local time = redis.call('TIME')
    local now = math.floor(time[1] * 1000 + time[2] / 1000)
    redis.call('ZREMRANGEBYSCORE', l.waiting, '-inf', string.format('%.0f', now))
    redis.call('ZADD', l.waiting, string.format('%.0f', now + ${INTEREST}), ARGV[arg])
    redis.call('PEXPIRE', l.waiting, ${INTEREST})
  end
  return {l.count, missing}
`,
  1,
);
