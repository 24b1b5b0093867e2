// One scheduled job: every process is called at each tick, and one of them runs.

import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import { sleep, type Workload } from './workload.js';

const PERIOD = 2_000;
const AT_LEAST = 1_000;
const AT_MOST = 1_500;

interface Run {
  /** When its call was made: the name stays taken for at least `AT_LEAST` from then. */
  readonly askedAt: number;
  readonly who: string;
}

/** What a process must find in the record of a run that it has ended. */
interface Ended {
  readonly token: number;
  readonly askedAt: number;
}

export class Jobs implements Workload {
  entries = 0;
  private last: Run | undefined;

  constructor(private readonly schedule: Schedule) {}

  async call({ process, services }: Application, random: Random): Promise<void> {
    const { world, verdict, server, swarm } = this.schedule;
    const tick = Math.ceil((process.time + 1) / PERIOD) * PERIOD;
    await sleep(tick - process.time + random.between(0, 400));
    const askedAt = process.time;
    const options = { atMostFor: AT_MOST, atLeastFor: AT_LEAST };
    let ended: Ended | undefined;
    const unrecorded = services.unrecordedRuns();
    const body = async ({ fencingToken }: { readonly fencingToken: number }) => {
      this.entries += 1;
      const { last } = this;
      world.note(process.name, 'RUNS the job');
      const forgotten = last && server.losses.some(({ time }) => time >= last.askedAt);
      const free = last && last.askedAt + AT_LEAST * (1 - 2 * swarm.drift) - 1;
      if (free !== undefined && askedAt > (last?.askedAt ?? 0) && process.time < free && !forgotten) {
        verdict.violated(
          'TICK',
          `${process.name} runs the job ${(process.time - (last?.askedAt ?? 0)).toFixed(0)} ms after ${last?.who} asked`,
        );
      }
      this.last = { askedAt, who: process.name };
      const overstays = random.chance(swarm.overstays);
      await sleep(overstays ? random.between(AT_MOST, AT_MOST + PERIOD) : random.exponential(swarm.holdTime));
      ended = { token: fencingToken, askedAt };
    };
    try {
      await services.jobs.run('j', options, body);
      // A warning said that the record may lack a run.
      if (services.unrecordedRuns() > unrecorded) return;
      if (!ended) return;
      if (random.chance(0.5)) await sleep(random.between(0, PERIOD));
      await this.look(process.name, services, ended);
    } catch (problem) {
      const error = problem as Error;
      world.note(process.name, `does not run the job (${error.name})`);
      if (!/^Lock(Lost|Backend)Error$/.test(error.name)) verdict.violated('ERROR', error.stack ?? error.message);
    }
  }

  /** The record is of this run, or of a later one. */
  private async look(who: string, { jobs }: Application['services'], { token, askedAt }: Ended): Promise<void> {
    const { verdict, server } = this.schedule;
    // Not every store keeps records, nor is it always there.
    const last = await jobs.lastRun('j').catch((error: Error) => error);
    if (last instanceof Error || server.losses.some(({ time }) => time >= askedAt)) return;
    if (last && (last.fencingToken > token || (last.fencingToken === token && last.outcome === 'succeeded'))) return;
    verdict.violated(
      'RUN',
      `${who} has ended the job with token ${token}, and its last run is ${JSON.stringify(last)}`,
    );
  }
}
