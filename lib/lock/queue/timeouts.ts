/** One callback that is to run later, unless it is cancelled first. */
export interface Timeout {
  readonly dueAt: number;
  readonly expire: () => void;
}

/**
 * Many time-outs of one duration on one timer: they fall due in the order in which they were started. A time-out that is
 * started and cancelled costs two operations on a set. Never keeps the process alive.
 */
class EqualTimeouts {
  private readonly pending = new Set<Timeout>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly duration: number) {}

  start(expire: () => void): Timeout {
    const timeout = { dueAt: performance.now() + this.duration, expire };
    this.pending.add(timeout);
    this.timer ??= this.arm(this.duration);
    return timeout;
  }

  cancel(timeout: Timeout): void {
    this.pending.delete(timeout);
  }

  get idle(): boolean {
    return this.timer === undefined;
  }

  private arm(delay: number): NodeJS.Timeout {
    return setTimeout(() => this.expireDue(), Math.ceil(delay)).unref();
  }

  private expireDue(): void {
    const now = performance.now();
    this.timer = undefined;
    for (const timeout of this.pending) {
      if (timeout.dueAt > now) {
        this.timer ??= this.arm(timeout.dueAt - now);
        return;
      }
      this.pending.delete(timeout);
      timeout.expire();
    }
  }
}

/** How many durations are kept apart; beyond, those without a time-out are forgotten. */
const MOST_DURATIONS = 64;

/** Time-outs of a few durations each of which is used again and again. */
export class Timeouts {
  private readonly durations = new Map<number, EqualTimeouts>();

  start(duration: number, expire: () => void): Timeout {
    let equal = this.durations.get(duration);
    if (!equal) {
      if (this.durations.size >= MOST_DURATIONS) this.forgetIdle();
      equal = new EqualTimeouts(duration);
      this.durations.set(duration, equal);
    }
    return equal.start(expire);
  }

  cancel(duration: number, timeout: Timeout): void {
    this.durations.get(duration)?.cancel(timeout);
  }

  private forgetIdle(): void {
    for (const [duration, equal] of this.durations) if (equal.idle) this.durations.delete(duration);
  }
}
