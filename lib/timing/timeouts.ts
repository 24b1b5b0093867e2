import { LinkedList } from './brief-collections.js';
import { LONGEST_DELAY, onceReadIfLate } from './clock.js';

/** Something with a time limit that can end earlier. */
export interface Expiring {
  expire(): void;
}

/** A running time-out; `leave` cancels it. */
export interface Timeout {
  /** Cancels the time-out; `false` when it was over before. */
  leave(): boolean;
}

interface Due {
  /** When it is due, in ms of the monotonic clock. */
  at: number;
  readonly expiring: Expiring;
}

/** How often, within its duration, a time-out that does not count standstills is checked. */
const LOOKS = 4;
/** A timer that is more than this (ms) late shows a standstill. */
const TOLERANCE = 15;

/**
 * Time-outs of one duration on one timer. They fall due in the order in which they were started, so starting and
 * cancelling one costs next to nothing. Never keeps the process alive.
 */
class EqualTimeouts {
  private readonly pending = new LinkedList<Due>();
  private timer: NodeJS.Timeout | undefined;
  private timerAt = 0;
  private readonly longestDelay: number;

  constructor(
    private readonly duration: number,
    private readonly countsStandstills: boolean,
  ) {
    this.longestDelay = countsStandstills ? Infinity : duration / LOOKS;
  }

  start(expiring: Expiring): Timeout {
    const now = performance.now();
    this.timer ??= this.arm(this.duration, now);
    return this.pending.push({ at: now + this.duration, expiring });
  }

  get idle(): boolean {
    return !this.pending.first;
  }

  close(): void {
    forget(this.timer);
  }

  private arm(left: number, now: number): NodeJS.Timeout {
    const delay = Math.ceil(Math.min(left, this.longestDelay));
    this.timerAt = now + delay;
    return setTimeout(() => onceReadIfLate(this.pending.first?.at, () => this.look()), delay).unref();
  }

  private look(): void {
    this.timer = undefined;
    if (!this.countsStandstills) this.makeUpFor(performance.now());
    this.expireDue();
  }

  /**
   * Extends the time-outs by the time in which the process stood still, so that it reads what has arrived meanwhile.
   */
  private makeUpFor(now: number): void {
    const standstill = now - this.timerAt;
    if (standstill <= TOLERANCE) return;
    for (let place = this.pending.firstPlace; place; place = place.after) {
      const due = place.value;
      const passed = now - (due.at - this.duration);
      due.at += Math.min(standstill, passed);
    }
  }

  private expireDue(): void {
    for (let place = this.pending.firstPlace; place; place = this.pending.firstPlace) {
      const now = performance.now();
      const left = place.value.at - now;
      if (left > 0) {
        // An expired time-out may have started another one and with it a timer, which would be late for this.
        clearTimeout(this.timer);
        this.timer = this.arm(left, now);
        return;
      }
      place.leave();
      const { expiring } = place.value;
      apart(() => expiring.expire());
    }
  }
}

/** Calls one of those that share a timer. What it throws is uncaught as ever, and keeps none of the others waiting. */
function apart(run: () => void): void {
  try {
    run();
  } catch (error) {
    setImmediate(() => {
      throw error;
    });
  }
}

/** A time-out with a timer of its own, which leaves with it. */
class SingleTimeout implements Timeout {
  private timer: NodeJS.Timeout | undefined;

  constructor(duration: number, expiring: Expiring) {
    const at = performance.now() + duration;
    const expire = () => {
      if (this.leave()) expiring.expire();
    };
    this.timer = setTimeout(() => onceReadIfLate(at, expire), Math.ceil(duration)).unref();
  }

  leave(): boolean {
    if (!this.timer) return false;
    forget(this.timer);
    this.timer = undefined;
    return true;
  }
}

/**
 * Node.js keeps its data for a duration until that has passed, if the last timer of that duration is cleared while it
 * is unref'd. `ref` before clearing avoids this.
 */
function forget(timer: NodeJS.Timeout | undefined): void {
  clearTimeout(timer?.ref());
}

/** With more different durations at once than these, the others get timers of their own. */
const MOST_DURATIONS = 64;

/** Time-outs for callers that use few durations again and again. */
export class Timeouts {
  private readonly durations = new Map<number, EqualTimeouts>();
  private readonly countsStandstills: boolean;

  /**
   * `countsStandstills: false` for time-outs on others' answers: adds the time in which this process stood still
   * (blocked event loop, stopped process), so that it reads what has arrived first.
   */
  constructor({ countsStandstills = true }: { countsStandstills?: boolean } = {}) {
    this.countsStandstills = countsStandstills;
  }

  start(duration: number, expiring: Expiring): Timeout {
    let equal = this.durations.get(duration);
    if (!equal) {
      if (this.durations.size >= MOST_DURATIONS) this.forgetIdle();
      if (this.durations.size >= MOST_DURATIONS) return new SingleTimeout(duration, expiring);
      equal = new EqualTimeouts(duration, this.countsStandstills);
      this.durations.set(duration, equal);
    }
    return equal.start(expiring);
  }

  private forgetIdle(): void {
    for (const [duration, equal] of this.durations) {
      if (!equal.idle) continue;
      equal.close();
      this.durations.delete(duration);
    }
  }
}

/** How much later (ms) than asked for an instant may be at which what recurs falls due. */
const NEXT_TICK = 5;

/**
 * The instant (monotonic, ms) near `at` at which all that recurs every `period` ms falls due: as much of it as there is
 * shares a round trip. At most 5 ms after `at`, and at most `early` ms before it: what is further from the others comes
 * nearer each time.
 */
export function sharedInstant(at: number, period: number, early = period / 2): number {
  const late = Math.min(NEXT_TICK, period / 8);
  const shared = Math.floor((at + late) / period) * period;
  return Math.max(shared, at - early);
}

/** As `sharedInstant`, for heartbeats: none comes much sooner than after a period. */
export function nextHeartbeat(at: number, period: number): number {
  return sharedInstant(at, period, period / 25);
}

/**
 * Calls what is due in the same millisecond in one turn of the event loop, so that what it sends shares a round trip.
 * Never keeps the process alive. For instants that are not far away: a timer stays when all have left that it served.
 */
export class Ticks {
  private readonly ticks = new Map<number, Tick>();

  /** Calls `run` at `at` (monotonic, ms), or less than a millisecond before. */
  start(at: number, run: () => void): Timeout {
    // Multiples of different fractions meet but for the last digits.
    const instant = Math.floor(at + 0.01);
    let tick = this.ticks.get(instant);
    if (!tick) this.ticks.set(instant, (tick = new Tick(instant, () => this.ticks.delete(instant))));
    return tick.due.push(run);
  }

  /** Calls nothing any more of what was started. */
  stop(): void {
    for (const tick of this.ticks.values()) tick.stop();
    this.ticks.clear();
  }
}

/** What is due at one instant. */
class Tick {
  readonly due = new LinkedList<() => void>();
  private timer: NodeJS.Timeout;

  constructor(
    private readonly at: number,
    private readonly over: () => void,
  ) {
    this.timer = this.arm();
  }

  stop(): void {
    forget(this.timer);
  }

  private arm(): NodeJS.Timeout {
    return setTimeout(() => this.run(), Math.ceil(this.at - performance.now())).unref();
  }

  private run(): void {
    // A timer of Node.js fires early by the time that the turn took in which it was set.
    if (performance.now() < this.at - 1) {
      this.timer = this.arm();
      return;
    }
    this.over();
    for (let place = this.due.firstPlace; place; place = this.due.firstPlace) {
      place.leave();
      apart(place.value);
    }
  }
}

/** Made here, and not by a call: it would keep what the async context of the first one has for ever. */
const keepsAwake = setInterval(() => {}, LONGEST_DELAY).unref();
let awaited = 0;

/** Keeps the process alive until as many calls of `mayEnd`: what it waits for may come over an unref'd socket. */
export function mustNotEnd(): void {
  awaited += 1;
  if (awaited === 1) keepsAwake.ref();
}

/** Ends one `mustNotEnd`. */
export function mayEnd(): void {
  awaited -= 1;
  if (awaited === 0) keepsAwake.unref();
}
