import { LIMIT, runAmidFaults, type Primitive } from './amid-faults.js';

/** The answers of a key before the next one is used. */
const ANSWERS = 10;

/**
 * What was seen of each key: `fingerprint`, that of the first run, and `refused`, those that conflicted; `attempt` of
 * the last run, and `ended:<run>` for each that ended while its token was the highest; `answer`, the run whose result a
 * caller got, and `answers`, how many callers got an answer.
 */
const ONCE: Primitive = {
  program: 'once.mjs',
  names: ['a', 'b', 'c'],
  stays: /:result$/,
  scripts: {
    /** ARGV: token, run, attempt, fingerprint. Returns 1, or 0 if a later attempt has begun. */
    began: `
if not fenced() then return 0 end
local before = seen('attempt')
if tonumber(ARGV[3]) <= tonumber(before) then note(key .. ': attempt ' .. ARGV[3] .. ' after ' .. before) end
if seen('answer') ~= '0' then note(key .. ': attempt ' .. ARGV[3] .. ' began after an answer was given') end
redis.call('HSETNX', key, 'fingerprint', ARGV[4])
if seen('fingerprint') ~= ARGV[4] or seen('refused:' .. ARGV[4]) ~= '0' then
  note(key .. ': attempt ' .. ARGV[3] .. ' of another request')
end
redis.call('HSET', key, 'attempt', ARGV[3])
count('runs')
if ARGV[3] ~= '1' then count('repeatedRuns') end
return 1
`,
    /** ARGV: token, run. Returns 1, or 0 if a later attempt has begun. */
    ended: `
if not fenced() then return 0 end
redis.call('HSET', key, 'ended:' .. ARGV[2], 1)
return 1
`,
    /** KEYS: 5 the present number of each name. ARGV: run, name, number, fingerprint. */
    answered: `
if seen('answer') == '0' then redis.call('HSET', key, 'answer', ARGV[1]) end
if seen('answer') ~= ARGV[1] then note(key .. ': answers of ' .. seen('answer') .. ' and ' .. ARGV[1]) end
if seen('ended:' .. ARGV[1]) == '0' then note(key .. ': the answer of a run that was overtaken') end
if seen('fingerprint') ~= ARGV[4] then note(key .. ': the answer to another request') end
cycled(ARGV[2])
local answers = redis.call('HINCRBY', key, 'answers', 1)
if answers >= ${ANSWERS} and (redis.call('HGET', KEYS[5], ARGV[2]) or '0') == ARGV[3] then
  redis.call('HINCRBY', KEYS[5], ARGV[2], 1)
end
`,
    /** As `answered`. ARGV: fingerprint, name, number. */
    conflicted: `
if seen('fingerprint') == ARGV[1] then note(key .. ': a conflict with a request of its own') end
redis.call('HSET', key, 'refused:' .. ARGV[1], 1)
count('conflicts')
local answers = redis.call('HINCRBY', key, 'answers', 1)
if answers >= ${ANSWERS} and (redis.call('HGET', KEYS[5], ARGV[2]) or '0') == ARGV[3] then
  redis.call('HINCRBY', KEYS[5], ARGV[2], 1)
end
`,
  },
};

it(
  'an idempotent call never runs twice at once or after an answer, and gives equal answers',
  async () => {
    expect(await runAmidFaults(ONCE)).toMatchObject({ findings: [] });
  },
  LIMIT,
);
