import type { LoggerService } from '@nestjs/common';
import type { CacheStore } from '../../contracts/cache-store.js';
import { LONGEST_DELAY } from '../options/cache-durations.js';

/** Keys deleted in one go. */
const BATCH = 100;
/** How long (ms) a process that died over what it deletes keeps others from it. */
const CLAIM = 10_000;
/**
 * What another process has scheduled is looked after this much later (ms), at least and at most: usually it has done it
 * by then.
 */
const SLACK = { least: 250, most: 750 };
const FIRST_BACKOFF = 100;
const LONGEST_BACKOFF = 5_000;

/**
 * Carries scheduled deletions out when they are due, those of processes that died, too. It asks the store only when
 * something falls due, and its timer never keeps the process alive.
 */
export class ScheduledDeletionsRunner {
  private timer: NodeJS.Timeout | undefined;
  private wakeAt = Infinity;
  /** Until then this process is the first to look. */
  private ownUntil = 0;
  private underWay = false;
  private wokenMeanwhile = false;
  private failures = 0;
  private stopped = false;

  /** `invalidate` must reject when it has not deleted the keys: they are then due again. */
  constructor(
    private readonly store: CacheStore,
    private readonly invalidate: (keys: readonly string[]) => Promise<void>,
    private readonly logger: Pick<LoggerService, 'warn'>,
  ) {}

  /** Looks for what others have left. To be called again whenever messages of other processes may have been missed. */
  start(): void {
    this.wakeNoLaterThan(performance.now());
  }

  /** Deletes the keys in `delay` ms. Rejects when the store does not confirm that. */
  async schedule(keys: readonly string[], delay: number): Promise<void> {
    await this.store.deletions.schedule(keys, delay);
    const at = performance.now() + delay;
    this.ownUntil = Math.max(this.ownUntil, at);
    this.wakeNoLaterThan(at);
  }

  /** Some process has scheduled deletions that fall due in `delay` ms. */
  onScheduled(delay: number): void {
    this.wakeNoLaterThan(performance.now() + delay + slack());
  }

  /** What is being deleted is deleted to its end. */
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

  /** Answers in how many ms more falls due, `null` when there is no more. */
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
    // The clocks of two machines never tick together.
    this.wakeNoLaterThan(at <= this.ownUntil + SLACK.least ? at : at + slack());
  }

  /** Told once, until it succeeds again. What was claimed is due again when the claim ends. */
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
