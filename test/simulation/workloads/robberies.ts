// Locks and permits that are taken away from their holder: by a forced release, or by another client that deletes the
// key. No other caller wants them, so that nothing but the library's own looks tells the holder.

import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import { sleep, type Workload } from './workload.js';

const TTL = 60_000;
/** Within how many ms a holder must be told, by what has happened to it. */
const LIMITS = { forced: 500, deleted: 10_500, unrenewed: 5_500, permit: 10_500 };

interface Held {
  readonly held: boolean;
  readonly signal: AbortSignal;
  release(): Promise<void>;
}

export class Robberies implements Workload {
  entries = 0;

  constructor(private readonly schedule: Schedule) {}

  async call(application: Application, random: Random): Promise<void> {
    const { world, verdict, swarm } = this.schedule;
    const { process } = application;
    this.entries += 1;
    const name = `r${this.entries}`;
    const what = random.pick(['forced', 'deleted', 'unrenewed', 'permit'] as const);
    let hold: Held;
    try {
      hold = await this.take(application, name, what);
    } catch (error) {
      if (!/^(Lock|Primitive)\w*Error$/.test((error as Error).name))
        verdict.violated('ERROR', (error as Error).stack ?? '');
      return;
    }
    const { signal } = hold;
    await sleep(random.between(2_500, 4_000));
    if (!hold.held) return;
    const told = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    world.at(process.time, () => this.rob(application, name, what));
    await Promise.race([told, sleep(LIMITS[what])]);
    if (!signal.aborted && swarm.faultless) {
      verdict.violated('ROBBED', `${process.name} is not told in ${LIMITS[what]} ms that it lost ${name} (${what})`);
    }
    await hold.release().catch(() => {});
  }

  private take({ services }: Application, name: string, what: keyof typeof LIMITS): Promise<Held> {
    if (what === 'permit') return services.semaphores.acquire(name, { permits: 1, ttl: TTL });
    return services.locks.acquire(name, { ttl: TTL, renew: what !== 'unrenewed' });
  }

  private rob(application: Application, name: string, what: keyof typeof LIMITS): void {
    const { applications, server, world } = this.schedule;
    const other = applications.find((each) => each !== application && !each.process.dead);
    if (what === 'forced' && other) {
      world.note(other.process.name, `FORCES the release of ${name}`);
      other.process.observe(() => void other.services.locks.forceRelease(name).catch(() => {}));
      return;
    }
    const key = what === 'permit' ? `semaphore:{${name}}` : `lock:{${name}}`;
    world.note('a client', `deletes ${key}`);
    server.model.execute({ push: () => {} }, ['DEL', key]);
  }
}
