// Who believes to have a share of something, of which there is a limit: asked at the moment when another gets a share.

import type { Schedule } from '../schedule.js';
import type { SimulatedProcess } from '../simulated-process.js';
import { LEARNS } from './lock-rules.js';

export interface Believer {
  readonly process: SimulatedProcess;
  readonly size: number;
  /** Not before this time (true ms) was it granted: the answer may have been under way for most of its lease. */
  readonly grantedAfter: number;
  readonly what: string;
  /** Whether the store has its share. */
  readonly isKept?: () => boolean;
  /** What its process would be told if its code asked now. */
  believes(): boolean;
}

export class Believers {
  entries = 0;
  private readonly all = new Set<Believer>();

  constructor(
    private readonly schedule: Schedule,
    private readonly rule: string,
    private readonly limit: number,
  ) {}

  /** The process got a share. Returns what ends it. */
  add(believer: Believer): () => void {
    const { process, what } = believer;
    this.entries += 1;
    this.all.add(believer);
    this.schedule.world.note(process.name, `GETS ${what}`);
    this.schedule.world.at(process.time, () => this.check());
    return () => {
      if (this.all.delete(believer)) this.schedule.world.note(process.name, `ends ${what}`);
    };
  }

  died(process: SimulatedProcess): void {
    for (const believer of this.all) if (believer.process === process) this.all.delete(believer);
  }

  /** What a process believes to have, the store has. */
  checkKept(): void {
    const { server, verdict } = this.schedule;
    if (!server.keepsAll || server.losses.length > 0) return;
    for (const believer of this.all) {
      const { process, what, isKept, believes } = believer;
      if (!isKept || process.time > this.schedule.world.now || isKept() || !process.observe(() => believes())) continue;
      verdict.violated('OWNED', `${process.name} trusts ${what}, which the store has not`);
      this.all.delete(believer);
    }
  }

  private check(): void {
    const { server, verdict, world, swarm } = this.schedule;
    const lastLoss = server.losses.at(-1)?.time ?? -Infinity;
    // The server may grant again what it has forgotten, until the holder learns of that: soon, if nothing else happens.
    if (swarm.forgets && world.now < lastLoss + LEARNS) return;
    const sure = [...this.all].filter(
      ({ process, grantedAfter, believes }) =>
        (swarm.forgets || grantedAfter > lastLoss) && process.observe(() => believes()),
    );
    const sum = sure.reduce((total, { size }) => total + size, 0);
    if (sum <= this.limit) return;
    const who = sure.map(({ process, what }) => `${process.name} (${what})`).join(', ');
    verdict.violated(this.rule, `${sum} instead of ${this.limit} at one time: ${who}`);
  }
}
