import { LIMIT, runAmidFaults, type Primitive } from './amid-faults.js';

/**
 * What was seen of each latch: `sent:<arrival>`, when it was sent first, and `counted:<arrival>` once it was confirmed;
 * `open`, when the first call learned that none is missing. Times are in µs of the monotonic clock, which all processes
 * of a machine share.
 */
const SENT_BY = `
local function sent_by(when)
  local sent = 0
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    if fields[i]:sub(1, 5) == 'sent:' and tonumber(fields[i + 1]) <= tonumber(when) then sent = sent + 1 end
  end
  return sent
end
`;

const LATCH: Primitive = {
  program: 'latch.mjs',
  names: ['a', 'b', 'c'],
  stays: /^latch:.*(?<!:waiting)$/,
  scripts: {
    /** ARGV: arrival, when. Returns how many arrivals are certain to be counted together with this one. */
    arriving: `
local sent = redis.call('HGET', key, 'sent:' .. ARGV[1])
if not sent or tonumber(ARGV[2]) < tonumber(sent) then redis.call('HSET', key, 'sent:' .. ARGV[1], ARGV[2]) end
return tonumber(seen('counted')) + (seen('counted:' .. ARGV[1]) == '0' and 1 or 0)
`,
    /** ARGV: arrival, when it was confirmed, how many arrivals were counted then, how many at least, of how many. */
    arrived: `
${SENT_BY}
local counted, certain = tonumber(ARGV[3]), tonumber(ARGV[4])
if counted > sent_by(ARGV[2]) then note(key .. ': ' .. counted .. ' arrivals of ' .. sent_by(ARGV[2])) end
if counted < certain then note(key .. ': ' .. counted .. ' arrivals, and ' .. certain .. ' had arrived') end
if redis.call('HSETNX', key, 'counted:' .. ARGV[1], 1) == 1 then redis.call('HINCRBY', key, 'counted', 1)
else count('repeated') end
if counted == tonumber(ARGV[5]) then redis.call('HSETNX', key, 'open', ARGV[2]) end
count('arrivals')
`,
    /** KEYS: 5 the present number of each name. ARGV: name, number, when it passed, how many arrivals were needed. */
    passed: `
${SENT_BY}
local sent = sent_by(ARGV[3])
if sent ~= tonumber(ARGV[4]) then note(key .. ': passed with ' .. sent .. ' of ' .. ARGV[4] .. ' arrivals') end
local longest = tonumber(redis.call('HGET', tally, 'longestPassage') or '0')
local open = redis.call('HGET', key, 'open') or ARGV[3]
redis.call('HSET', tally, 'longestPassage', math.max(longest, math.floor((ARGV[3] - open) / 1000)))
cycled(ARGV[1])
if (redis.call('HGET', KEYS[5], ARGV[1]) or '0') == ARGV[2] then redis.call('HINCRBY', KEYS[5], ARGV[1], 1) end
`,
    /** A short wait ended before the latch was open. ARGV: when it began. */
    refused: `
local open = redis.call('HGET', key, 'open')
if open and tonumber(open) < tonumber(ARGV[1]) then note(key .. ': not passed although it was open') end
count('refused')
`,
  },
};

it(
  'a latch opens when all have arrived and not before, counts a repeated arrival once, and lets everybody pass',
  async () => {
    expect(await runAmidFaults(LATCH)).toMatchObject({ findings: [] });
  },
  LIMIT,
);
