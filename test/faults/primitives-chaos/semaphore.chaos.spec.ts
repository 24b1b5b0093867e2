import { SemaphoreService } from 'nest-redis-lock';
import { startLockApp } from '../../support/lock-app.js';
import { LIMIT, runAmidFaults, type Primitive } from './amid-faults.js';

const PERMITS = 5;

const SEMAPHORE: Primitive = {
  program: 'semaphore.mjs',
  names: ['hot'],
  // The places of killed processes in the queue, too: nobody is left to pass over them, until `atLast`.
  stays: /:(state|processes|queue)$/,
  scripts: {
    /**
     * Notes a finding if more permits are trusted at this moment than there are. KEYS: 4 who is inside. ARGV: 1 the
     * name, 2 the holder, 3 until when (ms of the machine's clock) its process trusts the permits, 4 how many they are,
     * 5 whether the hold begins. A process that was paused between its look at the lease and this script comes too
     * late, and is not inside.
     */
    enter: `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREM', key, ARGV[2])
if tonumber(ARGV[3]) <= now then return count('late') end
redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
local inside = tonumber(ARGV[4])
for _, holder in ipairs(redis.call('ZRANGE', key, 0, -1)) do
  inside = inside + tonumber(string.match(holder, ':(%d+)$'))
end
if inside > ${PERMITS} then note(ARGV[2] .. ' came in as number ' .. inside) end
redis.call('ZADD', key, ARGV[3], ARGV[2])
if ARGV[5] == '1' then cycled(ARGV[1]) else count('looks') end
`,
    /** KEYS: 4 who is inside. ARGV: 1 the holder. */
    leave: "redis.call('ZREM', key, ARGV[1])",
  },
  atLast: async (redis) => {
    await using app = await startLockApp({ redis, cache: false });
    const all = { permits: PERMITS, count: PERMITS, wait: 30_000 };
    await (await app.app.get(SemaphoreService).acquire('hot', all)).release();
  },
};

it(
  'a semaphore never grants more permits than there are, every caller gets its turn, and all permits come back',
  async () => {
    expect(await runAmidFaults(SEMAPHORE)).toMatchObject({ findings: [] });
  },
  LIMIT,
);
