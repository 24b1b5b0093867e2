/** Something that ends by itself unless it is over first. */
export interface Expiring {
  /** On the monotonic clock; set when it is started. */
  expiresAt: number;
  expire(): void;
}

/**
 * Many time-outs of one duration on one timer: they fall due in the order in which they were started, so that to start and
 * to cancel one costs an operation on a set. Never keeps the process alive.
 */
class EqualTimeouts {
  private readonly pending = new Set<Expiring>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly duration: number) {}

  start(expiring: Expiring): void {
    expiring.expiresAt = performance.now() + this.duration;
    this.pending.add(expiring);
    this.timer ??= this.arm(this.duration);
  }

  cancel(expiring: Expiring): void {
    this.pending.delete(expiring);
  }

  get idle(): boolean {
    return this.timer === undefined;
  }

  private arm(delay: number): NodeJS.Timeout {
    return setTimeout(() => this.expireDue(), Math.ceil(delay)).unref();
  }

  private expireDue(): void {
    this.timer = undefined;
    for (const expiring of this.pending) {
      const left = expiring.expiresAt - performance.now();
      if (left > 0) {
        this.timer ??= this.arm(left);
        return;
      }
      this.pending.delete(expiring);
      expiring.expire();
    }
  }
}

/** How many durations are kept apart before those without a time-out are forgotten. */
const MOST_DURATIONS = 64;

/** Time-outs of a few durations, each of which is used again and again. */
export class Timeouts {
  private readonly durations = new Map<number, EqualTimeouts>();

  start(duration: number, expiring: Expiring): void {
    let equal = this.durations.get(duration);
    if (!equal) {
      if (this.durations.size >= MOST_DURATIONS) this.forgetIdle();
      equal = new EqualTimeouts(duration);
      this.durations.set(duration, equal);
    }
    equal.start(expiring);
  }

  cancel(duration: number, expiring: Expiring): void {
    this.durations.get(duration)?.cancel(expiring);
  }

  private forgetIdle(): void {
    for (const [duration, equal] of this.durations) if (equal.idle) this.durations.delete(duration);
  }
}
