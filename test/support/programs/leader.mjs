// Stands for a leadership, and writes to a store outside while it leads: `step` refuses terms below the greatest one.
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { NestFactory } from '@nestjs/core';
import { LeaderElection, RedisLockModule } from 'nest-redis-lock';

const [, , port, evidencePort, lease] = process.argv;

/** Notes each leader in `terms`; counts steps of earlier leaders in `refused`. */
const STEP = `
local greatest = tonumber(redis.call('GET', 'term') or '0')
local term = tonumber(ARGV[1])
if term < greatest then return redis.call('INCR', 'refused') end
if term > greatest then
  local time = redis.call('TIME')
  redis.call('RPUSH', 'terms', ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. time[1] .. string.format('%06d', tonumber(time[2])))
  redis.call('SET', 'term', ARGV[1])
end
return redis.call('INCR', 'steps')
`;

const evidence = new Redis(Number(evidencePort));
class Root {}
const app = await NestFactory.createApplicationContext(
  { module: Root, imports: [RedisLockModule.forRoot({ redis: { port: Number(port) } })] },
  { logger: false },
);
const candidacy = app.get(LeaderElection).join('restock', {
  lease: Number(lease),
  onElected: async (signal, term) => {
    console.log(`elected ${term}`);
    // Reads the clock, so that a process that was stopped takes no step when it goes on.
    while (candidacy.isLeader && !signal.aborted) {
      await evidence.eval(STEP, 0, term, process.pid);
      await sleep(1);
    }
  },
  onLost: (reason) => console.log(`over "${reason}"`),
});
await candidacy.answered;
console.log('ready');
process.once('SIGTERM', () => void app.close().then(() => process.exit()));
