import { LIMIT, runAmidFaults, type Primitive } from './amid-faults.js';

/** A cycle is a term whose leader has written until the end of it. */
const LEADER: Primitive = {
  program: 'leader.mjs',
  names: ['a', 'b', 'c', 'd'],
  scripts: {
    /** ARGV: term, leader. Returns 1, or 0 if a later term has begun. */
    began: `
if not fenced() then return 0 end
if seen('begun') == ARGV[1] then note(key .. ', term ' .. ARGV[1] .. ': begun twice') end
redis.call('HSET', key, 'begun', ARGV[1])
count('terms')
return 1
`,
    /** ARGV: term, leader, name. Returns 1, or 0 if a later term has begun. */
    ended: `
if not fenced() then return 0 end
cycled(ARGV[3])
return 1
`,
  },
};

it(
  'there is one leader at a time, with rising terms, and always another one',
  async () => {
    expect(await runAmidFaults(LEADER)).toMatchObject({ findings: [] });
  },
  LIMIT,
);
