import type { Warnings } from '../../errors/limited-log.js';
import type { CacheStore } from '../../contracts/cache-store.js';
import { LONGEST_DELAY } from '../../timing/longest-delay.js';
import { namedBy, nameOfKey, nameOfPrefix, type PrefixDeletion } from './deletion-names.js';

/** How many deletions are claimed at once. */
const BATCH = 100;
/** How long (ms) deletions stay claimed by a process that died while it carried them out. */
const CLAIM = 10_000;
/**
 * How long (ms, least and most) other processes wait before they carry out a due deletion: the process that scheduled
 * it has usually done it by then.
 */
const SLACK = { least: 250, most: 750 };
const FIRST_BACKOFF = 100;
const LONGEST_BACKOFF = 5_000;

/** Both must reject when they have not deleted everything: it is then due again. */
export interface DueDeletions {
  ofKeys(keys: readonly string[]): Promise<unknown>;
  ofPrefix(deletion: PrefixDeletion): Promise<unknown>;
}

/**
 * Carries out scheduled deletions when they are due, also those of processes that died. Asks the store only when a
 * deletion falls due; its timer does not keep the process alive.
 */
export class ScheduledDeletionsRunner {
  private timer: NodeJS.Timeout | undefined;
  private wakeAt = Infinity;
  /** Until then, this process carries out due deletions without waiting: it has scheduled some itself. */
  private ownUntil = 0;
  private underWay = false;
  private wokenMeanwhile = false;
  private failures = 0;
  private stopped = false;

  constructor(
    private readonly store: CacheStore,
    private readonly due: DueDeletions,
    private readonly logger: Warnings,
  ) {}

  /** Asks for due deletions now. Call it again whenever messages of other processes may have been missed. */
  start(): void {
    this.wakeNoLaterThan(performance.now());
  }

  /** Schedules the deletions with these names, `delay` ms from now. Rejects when the store does not confirm it. */
  async schedule(names: readonly string[], delay: number): Promise<void> {
    await this.store.deletions.schedule(names, delay);
    const at = performance.now() + delay;
    this.ownUntil = Math.max(this.ownUntil, at);
    this.wakeNoLaterThan(at);
  }

  /** Called when a process has scheduled deletions that fall due in `delay` ms. */
  onScheduled(delay: number): void {
    this.wakeNoLaterThan(performance.now() + delay + slack());
  }

  /** Claims no more deletions; claimed ones are still carried out. */
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
      const { names, next } = await this.store.deletions.claim(BATCH, CLAIM);
      if (names.length === 0) return next;
      const keys: string[] = [];
      for (const due of names.map(namedBy)) {
        if (typeof due === 'string') keys.push(due);
        else void this.sweep(due);
      }
      if (keys.length === 0) continue;
      await this.due.ofKeys(keys);
      await this.store.deletions.done(keys.map(nameOfKey));
    }
    return null;
  }

  /** Keeps the claim while it deletes: it scans all keys of the store. Deletions by key do not wait for it. */
  private async sweep(deletion: PrefixDeletion): Promise<void> {
    const { deletions } = this.store;
    const names = [nameOfPrefix(deletion)];
    const renew = async () => deletions.renew(names, CLAIM);
    // After a renewal that fails, another process may delete the same once more.
    const renewal = setInterval(() => void renew().catch(() => {}), CLAIM / 3).unref();
    try {
      await this.due.ofPrefix(deletion);
      await deletions.done(names);
    } catch (error) {
      this.failed(error);
    } finally {
      clearInterval(renewal);
    }
  }

  private wakeAtNext(at: number): void {
    // The clock of the store differs from ours, so a deletion of ours may fall due a little later.
    this.wakeNoLaterThan(at <= this.ownUntil + SLACK.least ? at : at + slack());
  }

  /** Logs only the first failure until one succeeds again. Claimed deletions are due again when their claim ends. */
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
