// A row of a source, and what is known of its versions.

import type { SimulatedProcess } from '../simulated-process.js';

interface Confirmed {
  readonly version: number;
  /** When the change began: what the store loses later may bring back what was before. */
  readonly since: number;
  readonly at: number;
  /** For how long (ms) each process had stood still by then. */
  readonly stoodStill: ReadonlyMap<SimulatedProcess, number>;
}

/** A value that is written into the cache by hand. */
interface SetByHand {
  readonly process: SimulatedProcess;
  endedAt: number;
}

/** Milliseconds for which the store may carry out a `set` whose process has died. */
const SET_WITHIN = 400;

export class ChangedRow {
  version = 1;
  /** The newest version that was written behind a barrier. */
  committed = 0;
  /** By process: the least version that it may read after changes of its own. */
  readonly own = new Map<SimulatedProcess, number>();
  private readonly confirmed: Confirmed[] = [{ version: 1, since: 0, at: 0, stoodStill: new Map() }];
  private readonly sets: SetByHand[] = [];

  /** The newest version that was confirmed. */
  get last(): Confirmed {
    return this.confirmed.at(-1) as Confirmed;
  }

  /** The newest version that was confirmed `ms` ago, of the time in which the process has not stood still. */
  confirmedFor(process: SimulatedProcess, ms: number): Confirmed {
    const isKnown = ({ at, stoodStill }: Confirmed) =>
      at + ms + process.stoodStill - (stoodStill.get(process) ?? 0) <= process.time;
    return this.confirmed.findLast(isKnown) ?? (this.confirmed[0] as Confirmed);
  }

  /** From `at` on, no read that begins returns an older version. */
  confirm(version: number, since: number, at: number, processes: readonly SimulatedProcess[]): void {
    if (version <= this.last.version) return;
    const stoodStill = new Map(processes.map((process) => [process, process.stoodStill]));
    this.confirmed.push({ version, since, at, stoodStill });
  }

  /** A value is set by hand from now on. Returns what ends that. */
  beginSet(process: SimulatedProcess): () => void {
    const set = { process, endedAt: Infinity };
    this.sets.push(set);
    return () => (set.endedAt = Math.min(set.endedAt, process.time));
  }

  /** Whether another process has set a value since then: it may have been stored after the change. */
  wasSetMeanwhile(process: SimulatedProcess, since: number): boolean {
    return this.sets.some((each) => each.process !== process && each.endedAt >= since);
  }

  died(process: SimulatedProcess): void {
    this.own.delete(process);
    for (const set of this.sets) {
      if (set.process === process) set.endedAt = Math.min(set.endedAt, process.world.now + SET_WITHIN);
    }
  }
}
