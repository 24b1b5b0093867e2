import type { LoggerService } from '@nestjs/common';
import type { BackendCalls, Ticketed } from '../backend/backend-calls.js';
import type { Grant } from './grant.js';
import type { ReleaseOutcome } from './release-outcome.js';
import { ReleaseRetries } from './release-retries.js';
import type { Watchdog } from './watchdog.js';

const LIMIT_STEP = 50;
/** Ended minimum holds are forgotten once there are more than this, and twice as many as after the last time. */
const FEWEST_TO_SWEEP = 64;

/** Releases grants at the backend, and repeats the release until the backend confirms it or the lease ends. */
export class Releaser {
  private readonly underWay = new Set<Promise<unknown>>();
  private readonly retries: ReleaseRetries;
  /** Tickets in their minimum hold, and when (monotonic, ms) that ends: a late message or answer must not free them. */
  private readonly minHolds = new Map<string, number>();
  private sweepAt = FEWEST_TO_SWEEP;

  constructor(
    private readonly calls: BackendCalls,
    private readonly watchdog: Watchdog,
    logger: Pick<LoggerService, 'warn'>,
  ) {
    this.retries = new ReleaseRetries(calls, logger);
  }

  /** Releases the grant. Waits for the answer to the first send only, and never beyond the deadline. */
  release(grant: Grant): Promise<ReleaseOutcome> {
    this.watchdog.unwatch(grant);
    if (grant.inMinHold) this.rememberMinHold(grant);
    return new Promise((resolve) => {
      this.calls.sendRelease(
        grant,
        this.limitOf(grant),
        // The first send may have freed it, and another process may have it since.
        ({ status, resent }) => resolve(resent ? 'released' : status),
        () => {
          this.repeatUntilConfirmed(grant);
          resolve('unconfirmed');
        },
      );
    });
  }

  /** Milliseconds until the deadline at most, in steps: `Timeouts` shares a timer among equal durations. */
  private limitOf(grant: Grant): number {
    const remaining = grant.remaining();
    if (remaining >= this.calls.commandTimeout) return this.calls.commandTimeout;
    return Math.max(1, Math.floor(remaining / LIMIT_STEP) * LIMIT_STEP);
  }

  /** Repeats the release of what this ticket owns until the backend confirms it or the lease ends. */
  repeatUntilConfirmed(grant: Grant): void {
    const { names, ticket, minHoldUntil } = grant;
    this.track(
      this.retries.repeat({ names, ticket, minHoldUntil, until: performance.now() + grant.longest, held: true }),
    );
  }

  /**
   * Releases what this ticket may own, whose grant was never used or whose lease was lost. Repeats it until the backend
   * answers, for at most `ttl` ms.
   */
  abandon({ names, ticket, minHoldUntil = this.minHolds.get(ticket) ?? 0 }: Ticketed, ttl: number): void {
    const until = performance.now() + ttl;
    const abandoned = { names, ticket, minHoldUntil };
    if (minHoldUntil > 0) this.rememberMinHold(abandoned);
    this.track(
      this.calls.release(abandoned).then(
        () => {},
        () => this.retries.repeat({ ...abandoned, until, held: false }),
      ),
    );
  }

  /** How many tickets it remembers with their minimum hold. */
  get minHoldCount(): number {
    return this.minHolds.size;
  }

  private rememberMinHold({ ticket, minHoldUntil }: Required<Ticketed>): void {
    this.minHolds.set(ticket, minHoldUntil);
    if (this.minHolds.size > this.sweepAt) this.forgetEndedMinHolds();
  }

  /** Looks through all of them, and not before their number has doubled: each ticket then costs next to nothing. */
  private forgetEndedMinHolds(): void {
    const now = performance.now();
    for (const [ticket, until] of this.minHolds) if (until <= now) this.minHolds.delete(ticket);
    this.sweepAt = Math.max(FEWEST_TO_SWEEP, 2 * this.minHolds.size);
  }

  /** Resolves when all tracked work is done, after `limit` ms at the latest; then stops all repetitions. */
  async stop(limit: number): Promise<void> {
    const timeUp = new Promise((resolve) => setTimeout(resolve, limit).unref());
    const settled = (async () => {
      while (this.underWay.size > 0) await Promise.all(this.underWay);
    })();
    await Promise.race([settled, timeUp]);
    this.retries.stop();
  }

  /** Makes `stop` wait for work that no caller waits for. */
  track(work: Promise<unknown>): void {
    this.underWay.add(work);
    void work.finally(() => this.underWay.delete(work));
  }
}
