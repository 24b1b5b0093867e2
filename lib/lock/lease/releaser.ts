import type { LoggerService } from '@nestjs/common';
import type { BackendCalls, Ticketed } from '../backend/backend-calls.js';
import type { Grant } from './grant.js';
import { UnconfirmedReleases } from './unconfirmed-releases.js';
import type { Watchdog } from './watchdog.js';

/** `unconfirmed`: the backend did not answer the first send; it is repeated in the background until the lease ends. */
export type ReleaseOutcome = 'released' | 'gone' | 'taken' | 'unconfirmed';

/** Given back without asking the backend. */
export const RELEASED = Promise.resolve<ReleaseOutcome>('released');

const LIMIT_STEP = 50;

/** Gives leases back, and goes on with it where the backend does not confirm. */
export class Releaser {
  private readonly underWay = new Set<Promise<unknown>>();
  private readonly unconfirmed: UnconfirmedReleases;
  /** The tickets whose names stay taken, and until when: a late message or answer must not free them. */
  private readonly kept = new Map<string, number>();

  constructor(
    private readonly calls: BackendCalls,
    private readonly watchdog: Watchdog,
    logger: Pick<LoggerService, 'warn'>,
  ) {
    this.unconfirmed = new UnconfirmedReleases(calls, logger);
  }

  /** Gives the grant back. Waits for the first send only, and never beyond the lease. */
  release(grant: Grant): Promise<ReleaseOutcome> {
    this.watchdog.unwatch(grant);
    if (grant.isKept) this.remember(grant);
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

  /** Never beyond the lease; in steps, so that few time-outs have a duration of their own. */
  private limitOf(grant: Grant): number {
    const remaining = grant.remaining();
    if (remaining >= this.calls.commandTimeout) return this.calls.commandTimeout;
    return Math.max(1, Math.floor(remaining / LIMIT_STEP) * LIMIT_STEP);
  }

  /** Goes on asking to free what this ticket owns, until the lease ends. */
  repeatUntilConfirmed(grant: Grant): void {
    const { names, ticket, keptUntil } = grant;
    this.track(
      this.unconfirmed.repeat({ names, ticket, keptUntil, until: performance.now() + grant.longest, held: true }),
    );
  }

  /**
   * Asks to free what this ticket may own, for at most `lease` ms more: its grant was never used, or its lease is lost.
   * Asks until it is answered.
   */
  abandon({ names, ticket, keptUntil = this.kept.get(ticket) ?? 0 }: Ticketed, lease: number): void {
    const until = performance.now() + lease;
    const abandoned = { names, ticket, keptUntil };
    if (keptUntil > 0) this.remember(abandoned);
    this.track(
      this.calls.release(abandoned).then(
        () => {},
        () => this.unconfirmed.repeat({ ...abandoned, until, held: false }),
      ),
    );
  }

  private remember({ ticket, keptUntil }: Required<Ticketed>): void {
    const now = performance.now();
    for (const [other, until] of this.kept) {
      if (until > now) break;
      this.kept.delete(other);
    }
    this.kept.set(ticket, keptUntil);
  }

  /** Resolves when nothing is under way any more, at the latest after `limit` ms; then repeats nothing. */
  async stop(limit: number): Promise<void> {
    const timeUp = new Promise((resolve) => setTimeout(resolve, limit).unref());
    const settled = (async () => {
      while (this.underWay.size > 0) await Promise.all(this.underWay);
    })();
    await Promise.race([settled, timeUp]);
    this.unconfirmed.stop();
  }

  /** Work that must be done before the application ends, though nobody waits for it. */
  track(work: Promise<unknown>): void {
    this.underWay.add(work);
    void work.finally(() => this.underWay.delete(work));
  }
}
