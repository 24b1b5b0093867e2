import { LinkedList } from './linked-list.js';
import { onceReadIfLate } from './once-read.js';

/** Something that ends by itself unless it is over first. */
export interface Expiring {
  expire(): void;
}

/** A time-out that was started; it is cancelled by leaving. */
export interface Timeout {
  /** Answers `false` when it was over before. */
  leave(): boolean;
}

interface Due {
  /** On the monotonic clock. */
  at: number;
  readonly expiring: Expiring;
}

/** So often within its duration a time-out that does not count standstills is looked at. */
const LOOKS = 4;
/** A timer that is late by more ms tells of a standstill. */
const TOLERANCE = 15;

/**
 * Many time-outs of one duration on one timer: they fall due in the order in which they were started, so that to start
 * and to cancel one costs next to nothing. Never keeps the process alive.
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

  /** What came in while the process stood still is read in the time that it lost. */
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
        // What expired may have started another one, whose timer would be late for this.
        clearTimeout(this.timer);
        this.timer = this.arm(left, now);
        return;
      }
      place.leave();
      place.value.expiring.expire();
    }
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
 * Node.js keeps what it has for each duration, until that has passed, where the last timer of it is cleared while it is
 * unref'd.
 */
function forget(timer: NodeJS.Timeout | undefined): void {
  clearTimeout(timer?.ref());
}

/** More durations at once than these share no timer. */
const MOST_DURATIONS = 64;

/** Time-outs of mostly a few durations, each of which is used again and again. */
export class Timeouts {
  private readonly durations = new Map<number, EqualTimeouts>();
  private readonly countsStandstills: boolean;

  /**
   * `countsStandstills: false` for what waits for others: the time in which this process stood still, as its event loop
   * was blocked or it was stopped, is then added, so that what has arrived meanwhile is read first.
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
