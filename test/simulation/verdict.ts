// What a schedule has violated.

import type { Server } from './server.js';
import type { SimulatedProcess } from './simulated-process.js';
import type { World } from './world.js';

export interface Violation {
  readonly rule: string;
  readonly what: string;
  readonly time: number;
}

export class Verdict {
  readonly violations: Violation[] = [];

  constructor(private readonly world: World) {}

  violated(rule: string, what: string): void {
    this.world.note(rule, `IS VIOLATED: ${what}`);
    this.violations.push({ rule, what, time: this.world.now });
  }

  /** Every key has an expiry. */
  checkKeys({ model }: Server): void {
    for (const [key, { expires }] of model.data) {
      if (expires === undefined) this.violated('EXPIRY', `${key} has none`);
    }
  }

  /** After its end, a process keeps neither a timer nor a connection. */
  checkClosed(processes: readonly SimulatedProcess[], server: Server): void {
    for (const { name, dead, activeTimers } of processes) {
      if (dead || activeTimers.length === 0) continue;
      const shown = activeTimers.slice(0, 3).map(({ delay, repeats }) => `${delay} ms${repeats ? ' repeated' : ''}`);
      this.violated('TIMERS', `${name} has ${activeTimers.length} timers after its end: ${shown.join(', ')}`);
    }
    for (const { socket } of server.links) {
      if (!socket.process.dead && !socket.destroyed) this.violated('CONNECTION', `${socket.name} is still open`);
    }
  }
}
