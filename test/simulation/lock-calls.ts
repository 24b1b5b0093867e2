// What a caller does with locks: code as a user would write it.

import type { Lock } from '../../lib/lock/hold/lock.js';
import type { LockOptions } from '../../lib/lock/options/lock-options.js';
import type { Random } from './redis/random.js';
import type { Application, Schedule } from './schedule.js';

class GivenUp extends Error {
  override name = 'GivenUp';
}

export async function callLocks(
  schedule: Schedule,
  application: Application,
  random: Random,
  until: number,
): Promise<void> {
  await sleep(random.between(1, 500));
  while (schedule.world.now < until) {
    await holdOnce(schedule, application, random);
    await sleep(random.exponential(random.pick([1, 50, 600])));
  }
}

async function holdOnce(
  { swarm, rules, verdict }: Schedule,
  { process, services }: Application,
  random: Random,
): Promise<void> {
  const names = random.chance(swarm.several) ? ['a', 'b'] : [random.pick(swarm.names)];
  const reads = random.chance(swarm.reads);
  const overstays = random.chance(swarm.overstays);
  const wait = random.pick([0, 700, 5_000, Infinity, Infinity]);
  const fifo = random.chance(swarm.fifo) && !reads && names.length === 1;
  const options: LockOptions = {
    mode: reads ? 'read' : 'write',
    ttl: swarm.ttl,
    wait,
    renew: !overstays && random.chance(0.8),
    ...(fifo && { order: 'fifo' }),
  };
  if (random.chance(swarm.givesUp)) {
    const controller = new AbortController();
    options.signal = controller.signal;
    setTimeout(() => controller.abort(new GivenUp()), random.exponential(200));
  }
  const call = rules.asked(process, names, wait);
  let lock: Lock;
  try {
    lock = await services.locks.acquire(names, options);
  } catch (error) {
    const { name, message, stack } = error as Error;
    rules.ended(call, `is refused (${name})`);
    if (name === 'LockLostError') verdict.violated('REFUSAL', `acquire of ${names.join(' and ')} rejects: ${message}`);
    else if (!/^(Lock(Timeout|Backend)Error|GivenUp)$/.test(name)) verdict.violated('ERROR', stack ?? message);
    return;
  }
  rules.ended(call, 'is granted');
  const hold = rules.entered(process, names, reads, lock);
  if (random.chance(0.7)) {
    const { signal } = lock;
    if (signal.aborted) rules.left(hold, 'had lost');
    else {
      hold.signalled = true;
      signal.addEventListener('abort', () => rules.left(hold, 'loses'), { once: true });
    }
  }
  if (overstays) await sleep(swarm.ttl * 1.2);
  else if (!random.chance(swarm.atOnce)) await sleep(random.exponential(swarm.holdTime));
  rules.left(hold, 'releases');
  await lock.release().catch((error: Error) => {
    if (error.name !== 'LockLostError') verdict.violated('ERROR', error.stack ?? error.message);
  });
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
