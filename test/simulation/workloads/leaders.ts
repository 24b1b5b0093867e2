// One leader of all processes.

import type { Candidacy } from '../../../lib/primitives/leader/leader-term.js';
import type { Services } from '../library.js';
import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import type { SimulatedProcess } from '../simulated-process.js';
import { Believers } from './believers.js';
import { sleep, type Workload } from './workload.js';

export class Leaders implements Workload {
  private readonly believers: Believers;
  private highest = 0;

  constructor(private readonly schedule: Schedule) {
    this.believers = new Believers(schedule, 'LEADERS', 1);
  }

  get entries(): number {
    return this.believers.entries;
  }

  died(process: SimulatedProcess): void {
    this.believers.died(process);
  }

  /** Stands for a while, and then leaves or resigns. */
  async call({ process, services }: Application, random: Random): Promise<void> {
    const { swarm } = this.schedule;
    // A process has one candidacy, of all its callers.
    const candidacy = services.leaders.candidacy('l') ?? this.stand(process, services, swarm.ttl);
    await sleep(random.exponential(1_000));
    if (random.chance(0.5)) await candidacy.leave();
    else await candidacy.resign();
  }

  private stand(process: SimulatedProcess, { leaders }: Services, lease: number): Candidacy {
    const { swarm } = this.schedule;
    let end = () => {};
    const candidacy = leaders.join('l', {
      lease,
      onElected: () => {
        const { term } = candidacy;
        if (term === undefined || !candidacy.isLeader) return;
        if (term <= this.highest && swarm.tokensFall === 0) {
          this.schedule.verdict.violated('TERM', `${process.name} has term ${term}, after ${this.highest}`);
        }
        this.highest = Math.max(this.highest, term);
        end = this.believers.add({
          process,
          size: 1,
          grantedAfter: process.time - lease,
          what: `term ${term}`,
          believes: () => candidacy.isLeader && candidacy.term === term,
        });
      },
      onLost: () => end(),
    });
    return candidacy;
  }
}
