// Virtual time: what happens, in order, and the trace of it. One seed gives one trace.

import { createHash } from 'node:crypto';
import { Random } from './redis/random.js';

/** The wall clock at the beginning of each schedule. */
export const START = Date.UTC(2030, 0, 1);

interface Happening {
  readonly time: number;
  readonly order: number;
  run(): void;
}

/** A line of the trace. */
export interface Note {
  readonly time: number;
  /** A process, one of its connections, or a server. */
  readonly who: string;
  readonly what: string;
}

type OnNote = (note: Note) => void;

export class World {
  /** True time in ms. */
  now = 0;
  readonly notes: Note[] = [];
  /** Whether anybody reads the trace: what it says costs a tenth of the time. */
  private readonly traced: boolean;
  private readonly onNote: OnNote | undefined;
  private readonly heap: Happening[] = [];
  private order = 0;

  constructor(
    readonly seed: number,
    { traced = true, onNote }: { readonly traced?: boolean | undefined; readonly onNote?: OnNote | undefined } = {},
  ) {
    this.traced = traced;
    this.onNote = onNote;
  }

  /**
   * Random numbers for one purpose: what draws from its own stream does not change what others draw, so that a part of
   * a schedule can be left out.
   */
  stream(purpose: string): Random {
    return streamOf(this.seed, purpose);
  }

  /** `what` may depend on nothing that changes the schedule: without a trace nobody asks. */
  note(who: string, what: string | (() => string)): void {
    if (!this.traced) return;
    const note = { time: this.now, who, what: typeof what === 'string' ? what : what() };
    this.notes.push(note);
    this.onNote?.(note);
  }

  /** Of the trace: the same seed must give the same. */
  get hash(): string {
    const hash = createHash('sha1');
    for (const note of this.notes) hash.update(`${note.time} ${note.who} ${note.what}\n`);
    return hash.digest('hex').slice(0, 16);
  }

  /** Runs `run` at that time. */
  at(time: number, run: () => void): void {
    const { heap } = this;
    const happening = { time: Math.max(time, this.now), order: this.order++, run };
    let i = heap.push(happening) - 1;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      const above = heap[parent] as Happening;
      if (isBefore(above, happening)) break;
      heap[i] = above;
      i = parent;
    }
    heap[i] = happening;
  }

  /** Runs `run` every `period` ms until it returns `false`. */
  every(period: number, run: () => boolean | void): void {
    this.at(this.now + period, () => {
      if (run() !== false) this.every(period, run);
    });
  }

  /** Lets time pass until `time`, or until `over()`. */
  run(time: number, over: () => boolean = () => false): void {
    const { heap } = this;
    for (let next = heap[0]; next && next.time <= time && !over(); next = heap[0]) {
      this.removeFirst();
      this.now = next.time;
      next.run();
    }
    if (!over()) this.now = Math.max(this.now, time);
  }

  private removeFirst(): void {
    const { heap } = this;
    const last = heap.pop() as Happening;
    if (heap.length === 0) return;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= heap.length) break;
      const right = heap[child + 1];
      if (right && isBefore(right, heap[child] as Happening)) child += 1;
      const least = heap[child] as Happening;
      if (isBefore(last, least)) break;
      heap[i] = least;
      i = child;
    }
    heap[i] = last;
  }
}

function isBefore(a: Happening, b: Happening): boolean {
  return a.time < b.time || (a.time === b.time && a.order < b.order);
}

export function streamOf(seed: number, purpose: string): Random {
  let hash = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b);
  for (let i = 0; i < purpose.length; i++) hash = Math.imul(hash ^ purpose.charCodeAt(i), 0x01000193);
  return new Random(hash ^ (hash >>> 15));
}
