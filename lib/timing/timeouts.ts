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
  readonly at: number;
  readonly expiring: Expiring;
}

/**
 * Many time-outs of one duration on one timer: they fall due in the order in which they were started, so that to start and
 * to cancel one costs next to nothing. Never keeps the process alive.
 */
class EqualTimeouts {
  private readonly pending = new LinkedList<Due>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly duration: number) {}

  start(expiring: Expiring): Timeout {
    this.timer ??= this.arm(this.duration);
    return this.pending.push({ at: performance.now() + this.duration, expiring });
  }

  get idle(): boolean {
    return !this.pending.first;
  }

  close(): void {
    clearTimeout(this.timer);
  }

  private arm(delay: number): NodeJS.Timeout {
    return setTimeout(() => onceReadIfLate(this.pending.first?.at, () => this.expireDue()), Math.ceil(delay)).unref();
  }

  private expireDue(): void {
    this.timer = undefined;
    for (let place = this.pending.firstPlace; place; place = this.pending.firstPlace) {
      const left = place.value.at - performance.now();
      if (left > 0) {
        // What expired may have started another one, whose timer would be late for this.
        clearTimeout(this.timer);
        this.timer = this.arm(left);
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
    clearTimeout(this.timer);
    this.timer = undefined;
    return true;
  }
}

/** More durations at once than these share no timer. */
const MOST_DURATIONS = 64;

/** Time-outs of mostly a few durations, each of which is used again and again. */
export class Timeouts {
  private readonly durations = new Map<number, EqualTimeouts>();

  start(duration: number, expiring: Expiring): Timeout {
    let equal = this.durations.get(duration);
    if (!equal) {
      if (this.durations.size >= MOST_DURATIONS) this.forgetIdle();
      if (this.durations.size >= MOST_DURATIONS) return new SingleTimeout(duration, expiring);
      equal = new EqualTimeouts(duration);
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
