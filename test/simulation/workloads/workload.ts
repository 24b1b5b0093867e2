import type { Random } from '../redis/random.js';
import type { Application } from '../schedule.js';
import type { SimulatedProcess } from '../simulated-process.js';

/** One part of the library: how callers use it, and what must hold of it. */
export interface Workload {
  /** How many holds, runs or reads there were. */
  readonly entries: number;
  /** One call of a caller. Never rejects. */
  call(application: Application, random: Random): Promise<void>;
  /** After each turn of a process. */
  afterTurn?(process: SimulatedProcess): void;
  died?(process: SimulatedProcess): void;
  /** When all callers have had the time to end. */
  checkEnded?(): void;
  /** Some seconds later: what nobody uses is over. */
  checkQuiet?(): void;
  /** After the end of all applications. */
  checkClosed?(): void;
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
