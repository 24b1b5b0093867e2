import { latchScript } from './latch-script.js';

/**
 * Defines a latch unless there is one.
 *
 * KEYS, for each call: count, arrivals, waiting. ARGV: 1 the text with which channels begin; then for each call the
 * count and the ttl in ms. Returns for each call the count and how many arrivals are missing.
 */
export const DEFINE_LATCH = latchScript(
  `
  if l.count == 0 then
    l.count = tonumber(ARGV[arg])
    redis.call('DEL', l.arrivals)
    redis.call('HSET', l.count_key, 'count', ARGV[arg], 'ttl', ARGV[arg + 1])
    redis.call('PEXPIRE', l.count_key, ARGV[arg + 1])
  end
  return {l.count, l.missing()}
`,
  2,
);
