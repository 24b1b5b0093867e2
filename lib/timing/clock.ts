import { LinkedList, Place } from './brief-collections.js';

/** When this file was loaded. What the wall clock says counts from then: V8 keeps small whole numbers without a box. */
const LOADED = Date.now();

/** One instant, read on the monotonic clock and on the wall clock, in ms. */
export interface Instant {
  readonly monotonic: number;
  /** Since `LOADED`. */
  readonly wall: number;
}

export function currentInstant(): Instant {
  return { monotonic: performance.now(), wall: Date.now() - LOADED };
}

/**
 * Milliseconds since `instant`, by the clock that moved further: the monotonic clock stops while the machine is
 * suspended, but the lease at the backend goes on.
 */
export function elapsedSince(instant: Instant): number {
  return Math.max(performance.now() - instant.monotonic, Date.now() - LOADED - instant.wall);
}

/** Milliseconds from one instant to another, by the clock that moved further. */
export function elapsedBetween(from: Instant, to: Instant): number {
  return Math.max(to.monotonic - from.monotonic, to.wall - from.wall);
}

/** How far two clocks may drift apart over `lease` ms: 1 % + 2 ms, as in the Redlock specification of redis.io. */
export function driftOf(lease: number): number {
  return lease * 0.01 + 2;
}

/** A timer that fires more than this (ms) late shows that the event loop stood still. */
const LATE = 10;

/**
 * Runs `late` after the sockets have been read once. When the event loop stood still, it runs timers before it reads
 * sockets: the answer that a time-out would give up may have arrived. Called from an answer that was read, the first
 * `setImmediate` comes before the loop reads again; a read lies between the two, whatever the loop does now.
 */
export function onceRead(late: () => void): void {
  setImmediate(() => setImmediate(late));
}

/** Runs at once, unless the timer that was due at `at` (ms of the monotonic clock) fires late. */
function onceReadIfLate(at: number | undefined, run: () => void): void {
  if (at === undefined || performance.now() - at < LATE) run();
  else onceRead(run);
}

/** The longest delay in ms that a timer of Node.js takes, about 24.8 days; a longer one would fire at once. */
export const LONGEST_DELAY = 2 ** 31 - 1;

/**
 * Milliseconds to pause before the next retry, after `failures` earlier retries have failed: doubles from `first` up to
 * `longest`.
 */
export function backoff(failures: number, first = 25, longest = 1_000): number {
  return Math.min(first * 2 ** failures, longest);
}

/** Something with a time limit that can end earlier. */
export interface Expiring {
  expire(): void;
}

/** A running time-out; `leave` cancels it. */
export interface Timeout {
  /** Cancels the time-out; `false` when it was over before. */
  leave(): boolean;
}

/** One of the time-outs of a duration. */
class Due extends Place implements Timeout {
  constructor(
    /** When it is due, in ms of the monotonic clock. */
    public at: number,
    readonly expiring: Expiring,
  ) {
    super();
    this.before = this.after = this.list = undefined;
  }
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
  readonly pending = new LinkedList<Due>();
  timer: NodeJS.Timeout | undefined = undefined;
  private timerAt = 0;
  private readonly longestDelay: number;

  constructor(
    private readonly duration: number,
    private readonly countsStandstills: boolean,
  ) {
    this.longestDelay = countsStandstills ? Infinity : duration / LOOKS;
  }

  /** The first of them starts, at `now`. */
  begin(now: number): void {
    this.timer = this.arm(this.duration, now);
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
    for (let due = this.pending.first; due; due = due.after) {
      const passed = now - (due.at - this.duration);
      due.at += Math.min(standstill, passed);
    }
  }

  private expireDue(): void {
    for (let due = this.pending.first; due; due = this.pending.first) {
      const now = performance.now();
      const left = due.at - now;
      if (left > 0) {
        // An expired time-out may have started another one and with it a timer, which would be late for this.
        clearTimeout(this.timer);
        this.timer = this.arm(left, now);
        return;
      }
      due.leave();
      apart(due.expiring);
    }
  }
}

/** Calls one of those that share a timer. What it throws is uncaught as ever, and keeps none of the others waiting. */
function apart(expiring: Expiring): void {
  try {
    expiring.expire();
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
    const now = performance.now();
    if (!equal.timer) equal.begin(now);
    return equal.pending.push(new Due(now + duration, expiring));
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
    return this.add(at, new TickCall(run));
  }

  /** As `start`, for what is its own place. */
  add<P extends Place & Expiring>(at: number, place: P): P {
    // Multiples of different fractions meet but for the last digits.
    const instant = Math.floor(at + 0.01);
    let tick = this.ticks.get(instant);
    if (!tick) this.ticks.set(instant, (tick = new Tick(instant, () => this.ticks.delete(instant))));
    tick.due.push(place);
    return place;
  }

  /** Calls nothing any more of what was started. */
  stop(): void {
    for (const tick of this.ticks.values()) tick.stop();
    this.ticks.clear();
  }
}

class TickCall extends Place implements Expiring {
  constructor(readonly expire: () => void) {
    super();
    this.before = this.after = this.list = undefined;
  }
}

/** What is due at one instant. */
class Tick {
  readonly due = new LinkedList<Place & Expiring>();
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
    return setTimeout(() => this.run(), Math.max(1, Math.ceil(this.at - performance.now()))).unref();
  }

  private run(): void {
    // A timer of Node.js fires early by the time that the turn took in which it was set.
    if (performance.now() < this.at - 1) {
      this.timer = this.arm();
      return;
    }
    this.over();
    for (let place = this.due.first; place; place = this.due.first) {
      place.leave();
      apart(place);
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
