// Locks and permits that are taken away from their holder: by a forced release, or by another client that deletes the
// key. No other caller wants them, so that nothing but the library's own looks tells the holder.

import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import { sleep, type Workload } from './workload.js';

const TTL = 60_000;
const LINGERS = 5_000;
/** Within how many ms a holder must be told, by what has happened to it. */
const LIMITS = { forced: 500, deleted: 10_500, unrenewed: 5_500, permit: 10_500 };

type Robbery = keyof typeof LIMITS;

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
    const what = random.pick(['forced', 'deleted', 'unrenewed', 'permit', 'lingering'] as const);
    let hold: Held;
    try {
      if (what === 'lingering') return await this.robLingering(application, name);
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

  /** A lock that lingers is taken away, and another process has it: no caller of the first one gets it any more. */
  private async robLingering(application: Application, name: string): Promise<void> {
    const { world, verdict, swarm } = this.schedule;
    const { process, services } = application;
    const options = { ttl: TTL, linger: LINGERS };
    // It lingers from the second time on: the process then listens to those who wait.
    for (let time = 1; time <= 2; time++) await (await services.locks.acquire(name, options)).release();
    let others = false;
    world.at(process.time, () => {
      const other = this.otherThan(application);
      other?.process.observe(() => void this.robAndHold(other, name, (held) => (others = held)).catch(() => {}));
    });
    await sleep(LIMITS.forced);
    const lock = await services.locks.tryAcquire(name, options);
    if (lock && others && swarm.faultless) {
      verdict.violated('ROBBED', `${process.name} gets ${name}, which another process has taken away and holds`);
    }
    await lock?.release();
  }

  private async robAndHold(
    { process, services }: Application,
    name: string,
    tell: (held: boolean) => void,
  ): Promise<void> {
    await services.locks.forceRelease(name);
    const lock = await services.locks.acquire(name, { ttl: TTL });
    this.schedule.world.note(process.name, `TAKES ${name} away`);
    tell(true);
    await sleep(2 * LIMITS.forced);
    tell(false);
    await lock.release();
  }

  private otherThan(application: Application): Application | undefined {
    return this.schedule.applications.find((each) => each !== application && !each.process.dead);
  }

  private take({ services }: Application, name: string, what: Robbery): Promise<Held> {
    if (what === 'permit') return services.semaphores.acquire(name, { permits: 1, ttl: TTL });
    return services.locks.acquire(name, { ttl: TTL, renew: what !== 'unrenewed' });
  }

  private rob(application: Application, name: string, what: Robbery): void {
    const { server, world } = this.schedule;
    const other = this.otherThan(application);
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
