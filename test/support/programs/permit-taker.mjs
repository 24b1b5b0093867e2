// Takes permits of one semaphore and gives them back with several callers, and gives evidence of every hold on another
// Redis server (see test/faults/semaphore-chaos). SIGTERM ends the callers and the application.
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { SemaphoreService } from 'nest-redis-lock';
import { uniformInt } from 'pure-rand/distribution/uniformInt';
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus';
import { say, startLockApp } from './lock-app.mjs';

const { id, seed, evidence, enter, callers, name, permits, wait } = JSON.parse(process.argv[3]);
const witness = new Redis({ host: '127.0.0.1', port: evidence, retryStrategy: null });
// The parent process is gone.
const orphaned = () => process.exit(3);
witness.on('error', () => {}).on('close', orphaned);
const { app } = await startLockApp({ cache: false }, { shutdownHooks: false });
const semaphores = app.get(SemaphoreService);

const random = xoroshiro128plus(seed);
const whole = (least, most) => uniformInt(random, least, most);
const stop = new AbortController();
let holds = 0;

/** Shows until when this process trusts the permit: by then its count is inside, and not longer. */
async function show(holder, permit, tally) {
  const until = Math.floor(Date.now() + permit.remaining());
  await witness.eval(enter, 3, 'inside', 'tally', 'findings', holder, until, permit.count, permits, tally);
}

async function cycle() {
  const count = whole(1, 8) === 1 ? whole(2, permits) : 1;
  const hold = whole(1, 150) === 1 ? whole(10, 1_500) : whole(0, 3);
  const options = { permits, count, wait, ttl: whole(500, 1_000) };
  const started = performance.now();
  try {
    await semaphores.withPermit(name, options, async (permit) => {
      const holder = `${id}-${(holds += 1)}:${count}`;
      await show(holder, permit, 'cycles');
      if (hold > 0) await sleep(hold);
      if (permit.held) await show(holder, permit, 'looks');
      await witness.zrem('inside', holder);
    });
  } catch (error) {
    if (error.code === 'PERMIT_LOST') await witness.hincrby('tally', 'lost', 1);
    else await witness.rpush('findings', `${id}, after ${Math.round(performance.now() - started)} ms: ${error.stack}`);
  }
}

async function call() {
  while (!stop.signal.aborted) await cycle();
}

say('ready');
const calls = Array.from({ length: callers }, call);
await once(process, 'SIGTERM');
stop.abort();
await Promise.all(calls);
await app.close();
witness.off('close', orphaned).disconnect();
say('closed');
