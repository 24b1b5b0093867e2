import { latchScript } from './latch-script.js';

/**
 * Notes an arrival, and tells the waiting processes when it was the last one that was missing.
 *
 * KEYS, for each call: count, arrivals, waiting. ARGV: 1 the text with which channels begin; then for each call the id
 * of the arrival and the name of the latch. Returns for each call the count (0 if there is no such latch) and how many
 * arrivals are missing.
 *
 * An open latch takes no further ids, so that it does not grow.
 */
export const ARRIVE_AT_LATCH = latchScript(
  `
  if l.count == 0 then return {0, 0} end
  local missing = l.missing()
  if missing > 0 and redis.call('SADD', l.arrivals, ARGV[arg]) == 1 then missing = missing - 1 end
  redis.call('PEXPIRE', l.count_key, l.ttl)
  redis.call('PEXPIRE', l.arrivals, l.ttl)
  if missing == 0 then
    for _, process in ipairs(redis.call('ZRANGE', l.waiting, 0, -1)) do
      -- pcall: without the right to publish no message is sent, and those who wait find the latch open a little later.
      redis.pcall('PUBLISH', ARGV[1] .. process, 'latch ' .. ARGV[arg + 1])
    end
    redis.call('DEL', l.waiting)
  end
  return {l.count, missing}
`,
  2,
);
