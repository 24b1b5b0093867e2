import type { LoggerService } from '@nestjs/common';
import type { CacheStore } from '../../contracts/cache-store.js';
import { LONGEST_DELAY } from '../../timing/longest-delay.js';

/** How many keys are deleted at once. */
const BATCH = 100;
/** How long (ms) deletions stay claimed by a process that died while it carried them out. */
const CLAIM = 10_000;
/**
 * How long (ms, least and most) to leave a due deletion to the process that scheduled it, which usually has carried it
 * out by then.
 */
const SLACK = { least: 250, most: 750 };
const FIRST_BACKOFF = 100;
const LONGEST_BACKOFF = 5_000;

/**
 * Carries out scheduled deletions when they are due, also those of processes that died. Asks the store only when a
 * deletion falls due; its timer does not keep the process alive.
 */
export class ScheduledDeletionsRunner {
  private timer: NodeJS.Timeout | undefined;
  private wakeAt = Infinity;
  /** Until then, this process carries out due deletions without slack: it has scheduled some itself. */
  private ownUntil = 0;
  private underWay = false;
  private wokenMeanwhile = false;
  private failures = 0;
  private stopped = false;

  /** `invalidate` must reject when it has not deleted the keys, which are then due again. */
  constructor(
    private readonly store: CacheStore,
    private readonly invalidate: (keys: readonly string[]) => Promise<void>,
    private readonly logger: Pick<LoggerService, 'warn'>,
  ) {}

  /** Asks for due deletions now. Call it again whenever messages of other processes may have been missed. */
  start(): void {
    this.wakeNoLaterThan(performance.now());
  }

  /** Schedules the deletion of the keys in `delay` ms. Rejects when the store does not confirm it. */
  async schedule(keys: readonly string[], delay: number): Promise<void> {
    await this.store.deletions.schedule(keys, delay);
    const at = performance.now() + delay;
    this.ownUntil = Math.max(this.ownUntil, at);
    this.wakeNoLaterThan(at);
  }

  /** A process has scheduled deletions that fall due in `delay` ms. */
  onScheduled(delay: number): void {
    this.wakeNoLaterThan(performance.now() + delay + slack());
  }

  /** Claims no more deletions; those that are claimed are carried out. */
  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  private wakeNoLaterThan(at: number): void {
    if (this.stopped || at >= this.wakeAt) return;
    clearTimeout(this.timer);
    this.wakeAt = at;
    const delay = Math.max(0, Math.min(Math.ceil(at - performance.now()), LONGEST_DELAY));
    this.timer = setTimeout(() => this.wake(), delay).unref();
  }

  private wake(): void {
    this.wakeAt = Infinity;
    if (this.underWay) this.wokenMeanwhile = true;
    else void this.work();
  }

  private async work(): Promise<void> {
    this.underWay = true;
    do {
      this.wokenMeanwhile = false;
      try {
        const next = await this.deleteDue();
        this.failures = 0;
        if (next !== null) this.wakeAtNext(performance.now() + next);
      } catch (error) {
        this.failed(error);
      }
    } while (this.wokenMeanwhile && !this.stopped);
    this.underWay = false;
  }

  /** Resolves to the ms until the next deletion falls due, `null` when there is none. */
  private async deleteDue(): Promise<number | null> {
    while (!this.stopped) {
      const { keys, next } = await this.store.deletions.claim(BATCH, CLAIM);
      if (keys.length === 0) return next;
      await this.invalidate(keys);
      await this.store.deletions.done(keys);
    }
    return null;
  }

  private wakeAtNext(at: number): void {
    // The clock of the store differs from ours, so a deletion of ours may fall due a little later.
    this.wakeNoLaterThan(at <= this.ownUntil + SLACK.least ? at : at + slack());
  }

  /** Logs the first failure only, until it succeeds again. Claimed deletions are due again when their claim ends. */
  private failed(error: unknown): void {
    if (this.stopped) return;
    this.failures += 1;
    if (this.failures === 1) {
      const why = error instanceof Error ? error.message : String(error);
      this.logger.warn(`Scheduled deletions failed: ${why}; repeated until they succeed`);
    }
    const backoff = Math.min(FIRST_BACKOFF * 2 ** Math.min(this.failures - 1, 10), LONGEST_BACKOFF);
    this.wakeNoLaterThan(performance.now() + backoff);
  }
}

function slack(): number {
  return SLACK.least + Math.random() * (SLACK.most - SLACK.least);
}
