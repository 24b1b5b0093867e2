// One process: an event loop with clocks of its own. Its code takes no time, unless it stalls where it reads a clock.

import { runAs, type ProcessClock, type SimulatedImmediate, type SimulatedTimer } from './clock.js';
import type { Random } from './redis/random.js';
import type { Swarm } from './swarm.js';
import { START, type World } from './world.js';

interface Arrival {
  readonly at: number;
  run(): void;
}

const NONE: readonly never[] = [];

export class SimulatedProcess implements ProcessClock {
  readonly random: Random;
  dead = false;
  /** Milliseconds for which it was paused or stalled so far. */
  stoodStill = 0;
  pausedUntil = 0;
  /** Called at the end of each turn. */
  onTurn: () => void = () => {};
  /** Until when new connections fail, and how. */
  network: { readonly until: number; readonly silent: boolean } = { until: 0, silent: false };
  /** Until when its connections for messages end as soon as they are made. */
  unheardUntil = 0;
  /** When a request arrives that it has sent again meanwhile. */
  lateUntil = 0;
  sockets = 0;
  /** True ms for each ms of its clock. */
  readonly rate: number;
  private readonly origin: number;
  private readonly skew: number;
  private readonly chance: Random;
  private readonly timers = new Set<SimulatedTimer>();
  private immediates: SimulatedImmediate[] = [];
  private arrivals: Arrival[] = [];
  private wakesAt = Infinity;
  /** At its end, a turn wakes the loop for all that was added meanwhile. */
  private turning = false;
  private observed = false;
  /** How far its code is behind the world, after a stall within a turn. */
  private lag = 0;

  constructor(
    readonly world: World,
    readonly swarm: Swarm,
    readonly name: string,
  ) {
    this.random = world.stream(`${name} random`);
    this.chance = world.stream(`${name} chance`);
    this.rate = 1 + this.chance.pick([-1, 0, 1]) * swarm.drift;
    this.origin = this.chance.between(1, 1e6);
    this.skew = this.chance.between(-1, 1) * swarm.skew;
  }

  /** The true time at which its code runs now. */
  get time(): number {
    return this.world.now + this.lag;
  }

  monotonic(): number {
    const { swarm, chance } = this;
    if (!this.observed && swarm.stall > 0 && chance.chance(swarm.stall)) {
      this.block(chance.exponential(swarm.stallTime));
    }
    return this.origin + this.time * this.rate;
  }

  wall(): number {
    return Math.floor(START + this.skew + this.time * this.rate);
  }

  /** Runs `body` as code of this process that never stalls. */
  observe<T>(body: () => T): T {
    const before = this.observed;
    this.observed = true;
    try {
      return runAs(this, body);
    } finally {
      this.observed = before;
    }
  }

  /** Its code that runs now takes this time (ms). */
  block(ms: number): void {
    this.lag += ms;
    this.stoodStill += ms;
    this.world.note(this.name, () => `stands still for ${ms.toFixed(1)} ms`);
  }

  pause(ms: number): void {
    this.pausedUntil = Math.max(this.pausedUntil, this.world.now + ms);
    this.stoodStill += ms;
    this.world.note(this.name, `is paused for ${ms.toFixed(1)} ms`);
  }

  die(): void {
    this.dead = true;
    this.timers.clear();
    this.arrivals = [];
    this.immediates = [];
    this.world.note(this.name, 'is killed');
  }

  /** What would keep it alive, each with its delay. */
  get activeTimers(): readonly SimulatedTimer[] {
    return [...this.timers];
  }

  arm(timer: SimulatedTimer): void {
    // As in Node.js: whole ms of the loop's own time, which is that of the beginning of the ms.
    timer.due = Math.floor(this.origin + this.time * this.rate) + timer.delay;
    this.timers.delete(timer);
    this.timers.add(timer);
    this.wake(this.trueTime(timer.due));
  }

  disarm(timer: SimulatedTimer): void {
    this.timers.delete(timer);
  }

  addImmediate(immediate: SimulatedImmediate): void {
    this.immediates.push(immediate);
    this.wake(this.world.now);
  }

  dropImmediate(immediate: SimulatedImmediate): void {
    this.immediates = this.immediates.filter((each) => each !== immediate);
  }

  /** Something that its loop finds when it reads its sockets, from `at` on. */
  receive(at: number, run: () => void): void {
    if (this.dead) return;
    this.arrivals.push({ at, run });
    this.wake(at);
  }

  private trueTime(due: number): number {
    return (due - this.origin) / this.rate;
  }

  private wake(at: number): void {
    if (this.turning || at >= this.wakesAt || this.dead) return;
    this.wakesAt = Math.max(at, this.world.now);
    this.world.at(this.wakesAt, this.awake);
  }

  private readonly awake = (): void => {
    const { now } = this.world;
    if (this.wakesAt !== now || this.dead) return;
    this.wakesAt = Infinity;
    if (now < this.pausedUntil) this.wake(this.pausedUntil);
    else this.turn();
  };

  /** One turn of the loop: timers, then what has arrived, then immediates. */
  private turn(): void {
    const { world } = this;
    this.turning = true;
    const before = this.takeImmediates();
    for (let timer = this.dueTimer(); timer; timer = this.dueTimer()) {
      this.timers.delete(timer);
      if (timer.repeats) this.arm(timer);
      this.step(timer.run);
    }
    for (const { run } of this.arrived()) this.step(run);
    const meanwhile = this.takeImmediates();
    for (const immediate of before) this.step(immediate.run);
    for (const immediate of meanwhile) this.step(immediate.run);
    if (this.dead) return;
    this.onTurn();
    if (this.lag > 0) {
      this.pausedUntil = Math.max(this.pausedUntil, world.now + this.lag);
      this.lag = 0;
    }
    this.turning = false;
    let next = this.immediates.length > 0 ? world.now : Infinity;
    for (const { at } of this.arrivals) if (at < next) next = at;
    let due = Infinity;
    for (const timer of this.timers) if (timer.due < due) due = timer.due;
    next = Math.min(next, this.trueTime(due));
    if (next === Infinity) return;
    // A loop that is busy with other work sees things a little later.
    const late = this.chance.chance(this.swarm.busy) ? this.chance.exponential(3) : 0;
    this.wake(Math.max(next, this.pausedUntil, world.now + 0.001) + late);
  }

  private takeImmediates(): readonly SimulatedImmediate[] {
    const { immediates } = this;
    if (immediates.length > 0) this.immediates = [];
    return immediates.length > 0 ? immediates : NONE;
  }

  /** Takes out what has arrived by now. */
  private arrived(): readonly Arrival[] {
    const { arrivals, time } = this;
    if (arrivals.length === 0) return NONE;
    const later = arrivals.filter(({ at }) => at > time);
    if (later.length === arrivals.length) return NONE;
    this.arrivals = later;
    return later.length === 0 ? arrivals : arrivals.filter(({ at }) => at <= time);
  }

  private dueTimer(): SimulatedTimer | undefined {
    const local = this.origin + this.time * this.rate;
    let first: SimulatedTimer | undefined;
    for (const timer of this.timers) if (timer.due <= local && (!first || timer.due < first.due)) first = timer;
    return first;
  }

  private step(run: () => void): void {
    if (!this.dead) runAs(this, run);
  }
}
