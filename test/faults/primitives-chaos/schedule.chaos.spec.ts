import { LIMIT, runAmidFaults, type Primitive } from './amid-faults.js';

/**
 * What was seen of each job: when its last run was asked for and when it began, in µs of the monotonic clock, which all
 * processes of a machine share. A cycle is a tick with a run that ended.
 */
const SCHEDULE: Primitive = {
  program: 'schedule.mjs',
  names: Array.from({ length: 12 }, (_, index) => `job${index}`),
  stays: /:run$/,
  scripts: {
    /**
     * The name is kept for `atLeastFor` from its grant, so that another run begins that time after this one was asked
     * for, at the earliest. ARGV: token, run, when it was asked for, when it began, atLeastFor in µs. Returns 1, or 0
     * if a later run has begun.
     */
    began: `
local asked, began, keep = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local function apart(asked_before, began_after, what)
  if asked_before > 0 and began_after - asked_before < keep then
    note(key .. ': ' .. what .. ' began ' .. (began_after - asked_before) .. ' µs after the one before was asked for')
  end
end
if tonumber(ARGV[1]) < tonumber(seen('token')) then apart(asked, tonumber(seen('began')), seen('holder')) end
local asked_before = tonumber(seen('asked'))
if not fenced() then return 0 end
apart(asked_before, began, ARGV[2])
redis.call('HSET', key, 'asked', ARGV[3], 'began', ARGV[4])
return 1
`,
    /** ARGV: token, run, name. Returns 1, or 0 if a later run has begun. */
    ended: `
if not fenced() then return 0 end
cycled(ARGV[3])
return 1
`,
  },
};

it(
  'a scheduled job runs once at a tick that all processes offer, and never at two of them at once',
  async () => {
    expect(await runAmidFaults(SCHEDULE)).toMatchObject({ findings: [] });
  },
  LIMIT,
);
