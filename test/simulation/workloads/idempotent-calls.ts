// Calls with an idempotency key: once one has its result, the body never runs again.

import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import { sleep, type Workload } from './workload.js';

interface Answered {
  /** When the call began that was answered: its result was stored since, and may have been lost before the answer. */
  readonly since: number;
  readonly at: number;
  readonly result: number;
}

export class IdempotentCalls implements Workload {
  entries = 0;
  private readonly answers = new Map<string, Answered>();

  constructor(private readonly schedule: Schedule) {}

  async call({ process, services }: Application, random: Random): Promise<void> {
    const { swarm, verdict, world, server } = this.schedule;
    // Others every 10 s: a key runs once, and a schedule ends only when there were all its holds.
    const key = `k${Math.floor(world.now / 10_000)}.${random.below(12)}`;
    const fails = random.chance(0.2);
    const since = process.time;
    const body = async (): Promise<number> => {
      this.entries += 1;
      const run = this.entries;
      const earlier = this.answers.get(key);
      world.note(process.name, `RUNS ${key}, as run ${run}`);
      if (earlier && earlier.at < process.time && !server.losses.some(({ time }) => time >= earlier.since)) {
        verdict.violated('ONCE', `${process.name} runs ${key} although its result ${earlier.result} was returned`);
      }
      await sleep(random.exponential(swarm.holdTime));
      if (fails) throw new Failed();
      return run;
    };
    try {
      const result = await services.idempotency.run(key, { ttl: '1h', lease: swarm.ttl, wait: 2_000 }, body);
      const earlier = this.answers.get(key);
      world.note(process.name, `has result ${result} of ${key}`);
      if (!earlier) this.answers.set(key, { since, at: process.time, result });
      else if (earlier.result !== result && !server.losses.some(({ time }) => time >= earlier.since)) {
        verdict.violated('ONCE', `${key} has the results ${earlier.result} and ${result}`);
      }
    } catch (error) {
      const { name, message, stack } = error as Error;
      world.note(process.name, `has no result of ${key} (${name})`);
      if (!/^(Failed|Idempotency\w*Error|Lock\w*Error|PrimitiveBackendError)$/.test(name)) {
        verdict.violated('ERROR', stack ?? message);
      }
    }
  }
}

class Failed extends Error {
  override name = 'Failed';
}
