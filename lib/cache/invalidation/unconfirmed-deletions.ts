import { setTimeout as sleep } from 'node:timers/promises';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { TagStamp } from '../values/envelope.js';
import type { LocalState } from './local-state.js';
import { PendingDeletions, type Deletion } from './pending-deletions.js';
import type { StoreCalls } from '../store/store-calls.js';
import { backoff } from '../../timing/backoff.js';
import { keyResource, type StepOrder } from './step-order.js';

/** More deletions than these are not remembered: the next one is given up. */
const MOST = 100_000;
const FIRST_BACKOFF = 100;
const LONGEST_BACKOFF = 2_000;
/** How long (ms) the end of the application tries to have confirmed what is not, and how soon it tries again. */
const LAST_TRY = { most: 500, every: 25 };
/** Deletions that are sent at once. */
const BATCH = 64;

/**
 * Deletions that the store has not confirmed: they are repeated until it does, and what they cover is not read from the
 * store meanwhile.
 */
export class UnconfirmedDeletions {
  private readonly pending = new PendingDeletions();
  /** Those that are being sent again. */
  private readonly repeats = new Map<Deletion, Promise<void>>();
  /** Sweeps that wait before they try again. */
  private readonly resting = new Set<() => void>();
  private timer: NodeJS.Timeout | undefined;
  private failures = 0;
  private sending = false;
  private stopped = false;

  constructor(
    private readonly calls: StoreCalls,
    private readonly stepOrder: StepOrder,
    private readonly counters: CacheCounters,
    private readonly logger: { warn(message: string): void; error(message: string): void },
    private readonly local: LocalState,
  ) {
    calls.whenBack(() => {
      this.sendNow();
      for (const wake of this.resting) wake();
    });
  }

  get size(): number {
    return this.pending.size;
  }

  add(deletion: Deletion): void {
    if (this.stopped) {
      this.logger.error(`The ${deletion.what} is not confirmed by Redis, and given up: the application has ended`);
      return;
    }
    if (this.pending.size === 0) {
      this.logger.warn(
        `The ${deletion.what} is not confirmed by Redis; it and those that follow are repeated until they are`,
      );
    }
    if (this.pending.size >= MOST && !this.pending.has(deletion)) {
      this.logger.error(
        `The ${deletion.what} is given up: ${MOST} others are not confirmed either. What is stored may be served until it expires`,
      );
      return;
    }
    this.pending.add(deletion);
    if (deletion.matches) void this.sweep(deletion);
    else this.arm();
  }

  /** What is carried out once this one is, if it is sent now. */
  coveredBy(deletion: Deletion): readonly Deletion[] {
    return this.pending.coveredBy(deletion);
  }

  /** What was sent after they were there has succeeded. */
  confirmed(deletions: readonly Deletion[]): void {
    for (const deletion of deletions) this.pending.delete(deletion);
  }

  coversKey(key: string): boolean {
    return this.pending.covering(key) !== undefined;
  }

  coversTags(tags: TagStamp | undefined): boolean {
    return this.pending.coveringTags(tags) !== undefined;
  }

  /** Why what is stored under the key, with these tags, cannot be read; `undefined` where it can. */
  doubtAbout(key: string, tags?: TagStamp): CacheBackendError | undefined {
    const deletion = this.pending.covering(key) ?? this.pending.coveringTags(tags);
    return deletion && this.calls.failure('read', key, `Redis has not confirmed the ${deletion.what} yet`);
  }

  /**
   * Deletes the value of the key where that is due, for what builds on it, and has its turn. @throws CacheBackendError
   * when it is not confirmed
   */
  async settle(key: string): Promise<void> {
    for (const deletion of this.pending.ofKey(key)) await this.repeat(deletion);
    const doubt = this.doubtAbout(key);
    if (doubt) throw doubt;
  }

  /** Tries until it succeeds, for a short while, and names what is given up with the process. */
  async stop(): Promise<void> {
    if (this.stopped) return;
    this.stopped = true;
    clearTimeout(this.timer);
    for (const wake of this.resting) wake();
    if (this.pending.size === 0) return;
    this.calls.insist();
    for (let end = performance.now() + LAST_TRY.most, left = LAST_TRY.most; left > 0; left = end - performance.now()) {
      const sweeps = this.pending.sweeps.map((deletion) => this.repeat(deletion));
      await Promise.race([Promise.allSettled([this.sendAll(), ...sweeps]), rest(left)]);
      if (this.pending.size === 0) return;
      await rest(LAST_TRY.every);
    }
    this.logger.error(
      `${this.pending.size} deletions were never confirmed by Redis, the ${this.pending.first?.what} among them: what is stored may be served until it expires`,
    );
  }

  private arm(): void {
    if (this.sending || this.stopped || !this.pending.hasSteps) return;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.sendNow();
    }, pauseAfter(this.failures)).unref();
  }

  private sendNow(): void {
    if (this.sending || this.stopped || !this.pending.hasSteps) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.sending = true;
    this.sendAll().then(
      () => {
        this.sending = false;
        this.failures = 0;
        this.arm();
      },
      () => {
        this.sending = false;
        this.failures += 1;
        this.arm();
      },
    );
  }

  /** One that Redis refuses does not keep the others back. */
  private async sendAll(): Promise<void> {
    const all = this.pending.steps;
    let failure: unknown;
    for (let first = 0; first < all.length && !this.calls.breaker.isOpen; first += BATCH) {
      const batch = all.slice(first, first + BATCH);
      const results = await Promise.allSettled(batch.map((deletion) => this.repeatInTurn(deletion)));
      failure ??= results.find((result) => result.status === 'rejected')?.reason;
    }
    if (failure !== undefined || this.calls.breaker.isOpen) throw failure ?? new Error('Redis is left alone');
  }

  /** What looks at every key takes longer than one command may, and does not keep the others back. */
  private async sweep(deletion: Deletion): Promise<void> {
    for (let failures = 0; ; failures += 1) {
      await this.restUntilBack(pauseAfter(failures));
      if (this.stopped || !this.pending.includes(deletion)) return;
      try {
        return await this.repeat(deletion);
      } catch {
        // It is tried again.
      }
    }
  }

  /** What is being stored under its key meanwhile is not to be deleted. */
  private repeatInTurn(deletion: Deletion): Promise<void> {
    const { key } = deletion;
    if (key === undefined) return this.repeat(deletion);
    return this.stepOrder.run([{ resource: keyResource(key), mode: 'deletion' }], () => this.repeat(deletion));
  }

  /** Once at a time: a second one could undo what came after the first. */
  private repeat(deletion: Deletion): Promise<void> {
    let repeat = this.repeats.get(deletion);
    if (!repeat) {
      repeat = this.send(deletion).finally(() => this.repeats.delete(deletion));
      this.repeats.set(deletion, repeat);
    }
    return repeat;
  }

  private async send(deletion: Deletion): Promise<void> {
    // One that was confirmed or replaced meanwhile could undo what came after it: begin a barrier that was lifted.
    if (!this.pending.includes(deletion)) return;
    const { operation, key = '', matches } = deletion;
    if (matches) await this.calls.runLong(operation, async () => deletion.send());
    else await this.calls.run(operation, key, () => deletion.send());
    this.counters.repeatedInvalidations += 1;
    this.pending.delete(deletion);
    this.local.forgetCovered(deletion);
  }

  /** For `delay` ms, or until the store answers again. */
  private restUntilBack(delay: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.resting.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, delay).unref();
      this.resting.add(wake);
    });
  }
}

/** Milliseconds, never the same in all processes. */
function pauseAfter(failures: number): number {
  return backoff(failures, FIRST_BACKOFF, LONGEST_BACKOFF) * (0.75 + Math.random() / 2);
}

function rest(delay: number): Promise<void> {
  return sleep(delay, undefined, { ref: false });
}
