// Permits of one semaphore.

import type { Permit } from '../../../lib/primitives/semaphore/held-permit.js';
import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import type { SimulatedProcess } from '../simulated-process.js';
import { Believers } from './believers.js';
import { sleep, type Workload } from './workload.js';

const PERMITS = 2;

export class Permits implements Workload {
  private readonly believers: Believers;

  constructor(private readonly schedule: Schedule) {
    this.believers = new Believers(schedule, 'PERMITS', PERMITS);
    schedule.world.every(20, () => this.believers.checkKept());
  }

  get entries(): number {
    return this.believers.entries;
  }

  died(process: SimulatedProcess): void {
    this.believers.died(process);
  }

  async call({ process, services }: Application, random: Random): Promise<void> {
    const { swarm, verdict, world, server } = this.schedule;
    const count = random.chance(0.2) ? 2 : 1;
    const wait = random.pick([0, 700, 5_000, Infinity]);
    // Longer than the lease that one gets who waited.
    const ttl = 2 * swarm.ttl;
    const asked = process.time;
    let permit: Permit;
    try {
      permit = await services.semaphores.acquire('s', { permits: PERMITS, count, wait, ttl });
    } catch (error) {
      const { name, message, stack } = error as Error;
      world.note(process.name, `gets no permit (${name})`);
      if (!/^(Semaphore(Timeout|Busy)|Permit\w*|Primitive(Timeout|Backend))Error$/.test(name)) {
        verdict.violated('ERROR', stack ?? message);
      }
      return;
    }
    const end = this.believers.add({
      process,
      size: count,
      grantedAfter: Math.max(asked, process.time - ttl),
      what: `${count} of the permits`,
      isKept: () => server.hasPermits('s', `${permit.owner}:${count}`),
      believes: () => permit.held,
    });
    const blocks = random.chance(swarm.blocks) && permit.held;
    if (blocks) process.block(0.55 * ttl);
    if (!random.chance(swarm.atOnce)) await sleep(random.exponential(swarm.holdTime));
    end();
    await permit.release().catch((error: Error) => {
      if (swarm.faultless && (blocks || swarm.blocks === 0)) {
        verdict.violated(blocks ? 'BLOCKED' : 'KEPT', `${process.name} has lost a permit: ${error.message}`);
      }
      if (error.name !== 'PermitLostError') verdict.violated('ERROR', error.stack ?? error.message);
    });
  }
}
