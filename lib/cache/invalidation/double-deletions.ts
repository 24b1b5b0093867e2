import type { CacheStore } from '../../contracts/cache-store.js';
import { messageOf, textOf, type Warnings } from '../../errors/limited-log.js';
import { backoff, LONGEST_DELAY } from '../../timing/clock.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { Invalidations, MatchingDeletions } from './invalidations.js';

/** What a double deletion deletes. */
export type DoubleDeletionTarget = { readonly keys: readonly string[] } | PrefixDeletion;

/** The deletion of every value whose key begins with a prefix. */
interface PrefixDeletion {
  readonly prefix: string;
  /** How many keys to look at in one step. */
  readonly batch: number;
}

/** Deletes before and after a write, and again after a delay, for loaders that read from replicas that lag behind. */
export class DoubleDeletions {
  constructor(
    private readonly calls: StoreCalls,
    private readonly counters: CacheCounters,
    private readonly invalidations: Invalidations,
    private readonly matchingDeletions: MatchingDeletions,
    private readonly scheduled: ScheduledDeletionsRunner,
    private readonly warnings: Warnings,
  ) {}

  async run<T>(target: DoubleDeletionTarget, write: () => Promise<T>, delay: number, failOpen: boolean): Promise<T> {
    await this.delete(target, failOpen);
    // In case this process dies before the write ends. The schedule after the write replaces this one.
    await this.schedule(target, delay, failOpen);
    try {
      return await write();
    } finally {
      await this.delete(target, true);
      await this.schedule(target, delay, true);
    }
  }

  private async schedule(target: DoubleDeletionTarget, delay: number, failOpen: boolean): Promise<void> {
    const { calls, scheduled } = this;
    const names = 'keys' in target ? target.keys.map(nameOfKey) : [nameOfPrefix(target)];
    try {
      await calls.run('schedule of the second deletion', '', () => scheduled.schedule(names, delay));
    } catch (error) {
      this.counters.redisErrors += 1;
      if (!failOpen) throw error;
      const shown = 'keys' in target ? `"${target.keys.join('", "')}"` : `prefix "${target.prefix}"`;
      this.warnings.warn(
        `Redis did not schedule the second deletion of ${shown}, which this process carries out while it lives: ${textOf(error)}`,
      );
      setTimeout(() => void this.delete(target, true), delay).unref();
    }
  }

  private async delete(target: DoubleDeletionTarget, failOpen: boolean): Promise<void> {
    if ('keys' in target) await this.invalidations.deleteEach(target.keys, (key) => ({ key }), failOpen);
    else await this.matchingDeletions.delete({ match: { prefix: target.prefix }, batch: target.batch }, failOpen);
  }
}

/** Both must reject when they have not deleted everything: it is then due again. */
export interface DueDeletions {
  ofKeys(keys: readonly string[]): Promise<unknown>;
  ofPrefix(deletion: PrefixDeletion): Promise<unknown>;
}

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
      const why = messageOf(error);
      this.logger.warn(`Scheduled deletions failed: ${why}; repeated until they succeed`);
    }
    this.wakeNoLaterThan(performance.now() + backoff(this.failures - 1, FIRST_BACKOFF, LONGEST_BACKOFF));
  }
}

function slack(): number {
  return SLACK.least + Math.random() * (SLACK.most - SLACK.least);
}

/** What begins the names of all but the commonest deletions, those of a key. */
const MARK = '\0';

/**
 * The name under which the store keeps the scheduled deletion of a key: the key itself, unless it begins with a mark.
 */
function nameOfKey(key: string): string {
  return key.startsWith(MARK) ? `${MARK}k${key}` : key;
}

export function nameOfPrefix({ prefix, batch }: PrefixDeletion): string {
  return `${MARK}p${batch}:${prefix}`;
}

/** What the name stands for: a key, or a deletion by prefix. */
function namedBy(name: string): string | PrefixDeletion {
  if (!name.startsWith(MARK)) return name;
  const rest = name.slice(2);
  if (name[1] === 'k') return rest;
  const end = rest.indexOf(':');
  return { batch: Number(rest.slice(0, end)), prefix: rest.slice(end + 1) };
}
