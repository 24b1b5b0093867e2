import { setTimeout as sleep } from 'node:timers/promises';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import { cacheChannels } from '../../events/cache-channels.js';
import { backoff } from '../../timing/clock.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { TagStamp } from '../values/envelope.js';
import { type LocalState, PendingDeletions, type Deletion } from './local-state.js';
import { keyResource, type StepOrder } from './step-order.js';

/** How many deletions are remembered at most; a further one is given up. */
const MOST = 100_000;
const FIRST_BACKOFF = 100;
const LONGEST_BACKOFF = 2_000;
/** How long (ms) the application repeats deletions when it ends, and the pause between two attempts. */
const LAST_TRY = { most: 500, every: 25 };
/** How many deletions are sent at once. */
const BATCH = 64;

/**
 * Repeats the deletions that the store has not confirmed until it does. Meanwhile, this process reads nothing that they
 * cover from the store.
 */
export class UnconfirmedDeletions {
  readonly pending = new PendingDeletions();
  /** The deletions that are being sent again. */
  private readonly repeats = new Map<Deletion, Promise<void>>();
  /** Wakes the deletions by prefix or pattern that wait before their next attempt. */
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
      this.logger.error(`Redis has not confirmed the ${deletion.what}, which is given up: the application has ended`);
      return;
    }
    if (this.pending.size === 0) {
      this.logger.warn(
        `Redis has not confirmed the ${deletion.what}; it is repeated until Redis does, as are deletions that follow`,
      );
    }
    if (this.pending.size >= MOST && !this.pending.has(deletion)) {
      this.logger.error(
        `The ${deletion.what} is given up: Redis has not confirmed ${MOST} others. Old values may be served until they expire`,
      );
      return;
    }
    this.pending.add(deletion);
    if (cacheChannels.unconfirmed.hasSubscribers) cacheChannels.unconfirmed.publish({ what: deletion.what });
    if (deletion.matches) void this.sweep(deletion);
    else this.arm();
  }

  /** The deletions that this one makes superfluous, if it is sent now. */
  coveredBy(deletion: Deletion): readonly Deletion[] {
    return this.pending.coveredBy(deletion);
  }

  /** Forgets deletions: a step that covers them was sent after they were added and has succeeded. */
  confirmed(deletions: readonly Deletion[]): void {
    for (const deletion of deletions) this.forget(deletion);
  }

  coversTags(tags: TagStamp | undefined): boolean {
    return this.pending.coveringTags(tags) !== undefined;
  }

  /** Why the value of the key, with these tags, must not be read; `undefined` if it may. */
  doubtAbout(key: string, tags?: TagStamp): CacheBackendError | undefined {
    const deletion = this.pending.covering(key) ?? this.pending.coveringTags(tags);
    return deletion && this.calls.failure('read', key, `Redis has not confirmed the ${deletion.what} yet`);
  }

  /**
   * Sends the unconfirmed deletions of the key again, for a step that needs the current value and already runs in the
   * step order. @throws CacheBackendError when Redis does not confirm them
   */
  async settle(key: string): Promise<void> {
    for (const deletion of this.pending.ofKey(key)) await this.repeat(deletion);
    const doubt = this.doubtAbout(key);
    if (doubt) throw doubt;
  }

  /** Repeats the deletions for a short while, and logs those that it gives up. */
  async stop(): Promise<void> {
    if (this.stopped) return;
    this.stopped = true;
    clearTimeout(this.timer);
    for (const wake of this.resting) wake();
    if (this.pending.size === 0) return;
    this.calls.insist();
    for (let end = performance.now() + LAST_TRY.most, left = LAST_TRY.most; left > 0; left = end - performance.now()) {
      const sweeps = this.pending.sweeps.map((deletion) => this.repeat(deletion));
      await Promise.race([Promise.allSettled([this.sendAll(), ...sweeps]), pause(left)]);
      if (this.pending.size === 0) return;
      await pause(LAST_TRY.every);
    }
    this.logger.error(
      `Redis never confirmed ${this.pending.size} deletions, including the ${this.pending.first?.what}: old values may be served until they expire`,
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

  /** Goes on with the others when Redis refuses one. */
  private async sendAll(): Promise<void> {
    const all = this.pending.steps;
    let failure: unknown;
    for (let first = 0; first < all.length && !this.calls.breaker.isOpen; first += BATCH) {
      const batch = all.slice(first, first + BATCH);
      const results = await Promise.allSettled(batch.map((deletion) => this.repeatInOrder(deletion)));
      failure ??= results.find((result) => result.status === 'rejected')?.reason;
    }
    if (failure !== undefined || this.calls.breaker.isOpen)
      throw failure ?? new Error('Redis does not answer: the circuit breaker is open');
  }

  /** Deletions by prefix or pattern take longer than one command may, so they are repeated separately. */
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

  /** Repeats the deletion in the step order, so that it does not delete a value that is being stored under its key. */
  private repeatInOrder(deletion: Deletion): Promise<void> {
    const { key } = deletion;
    if (key === undefined) return this.repeat(deletion);
    return this.stepOrder.run([{ resource: keyResource(key), mode: 'deletion' }], () => this.repeat(deletion));
  }

  /** Sends one at a time: a second one could undo a change that followed the first. */
  private repeat(deletion: Deletion): Promise<void> {
    let repeat = this.repeats.get(deletion);
    if (!repeat) {
      repeat = this.send(deletion).finally(() => this.repeats.delete(deletion));
      this.repeats.set(deletion, repeat);
    }
    return repeat;
  }

  private async send(deletion: Deletion): Promise<void> {
    // A deletion that was confirmed or replaced meanwhile could undo a later change, or begin a barrier that was
    // lifted.
    if (!this.pending.includes(deletion)) return;
    const { operation, key = '', matches } = deletion;
    if (matches) await this.calls.runLong(operation, async () => deletion.send());
    else await this.calls.run(operation, key, () => deletion.send());
    this.counters.repeatedInvalidations += 1;
    this.forget(deletion);
    this.local.forgetCovered(deletion);
  }

  private forget(deletion: Deletion): void {
    const { confirmed } = cacheChannels;
    if (confirmed.hasSubscribers && this.pending.includes(deletion)) confirmed.publish({ what: deletion.what });
    this.pending.delete(deletion);
  }

  /** Waits for `delay` ms, or until the store answers again. */
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

/** The pause in ms, with jitter so that processes do not retry in step. */
function pauseAfter(failures: number): number {
  return backoff(failures, FIRST_BACKOFF, LONGEST_BACKOFF) * (0.75 + Math.random() / 2);
}

function pause(delay: number): Promise<void> {
  return sleep(delay, undefined, { ref: false });
}

/** The deletion of every value whose key begins with a prefix. */
export interface PrefixDeletion {
  readonly prefix: string;
  /** How many keys to look at in one step. */
  readonly batch: number;
}

/** What begins the names of all but the commonest deletions, those of a key. */
const MARK = '\0';

/**
 * The name under which the store keeps the scheduled deletion of a key: the key itself, unless it begins with a mark.
 */
export function nameOfKey(key: string): string {
  return key.startsWith(MARK) ? `${MARK}k${key}` : key;
}

export function nameOfPrefix({ prefix, batch }: PrefixDeletion): string {
  return `${MARK}p${batch}:${prefix}`;
}

/** What the name stands for: a key, or a deletion by prefix. */
export function namedBy(name: string): string | PrefixDeletion {
  if (!name.startsWith(MARK)) return name;
  const rest = name.slice(2);
  if (name[1] === 'k') return rest;
  const end = rest.indexOf(':');
  return { batch: Number(rest.slice(0, end)), prefix: rest.slice(end + 1) };
}
