import { setTimeout as sleep } from 'node:timers/promises';
import type { Pending } from '../../contracts/store.js';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import { cacheChannels } from '../../events/cache-channels.js';
import { backoff } from '../../timing/clock.js';
import type { CacheCounters } from '../store/cache-stats.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { TagStamp } from '../values/envelope.js';
import type { LocalState } from './local-state.js';
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
    if (this.pending.size === 0) return;
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

/** A deletion at the store, and what it covers. */
export interface Deletion {
  /** Names the deletion with its key or tag, for log lines. */
  readonly what: string;
  /** Names the deletion in errors, which name the key themselves. */
  readonly operation: string;
  /** A later deletion with the same name replaces this one. */
  readonly name: string;
  readonly key?: string;
  /** Whether it only deletes the value of `key`; any other deletion of the key then covers it. */
  readonly plain?: boolean;
  readonly tag?: string;
  /** Which keys it covers, if it scans all keys. */
  readonly matches?: (key: string) => boolean;
  send(): Pending<unknown>;
}

/** The deletions that the store has not confirmed, by what they cover. */
class PendingDeletions {
  size = 0;
  private readonly byName = new Map<string, Deletion>();
  private readonly byKey = new Map<string, Set<Deletion>>();
  /** Deletions that cover more than one key: every read is compared with them. */
  private readonly byTag = new Set<Deletion>();
  private readonly bySweep = new Set<Deletion>();

  /** The deletions that scan all keys. */
  get sweeps(): readonly Deletion[] {
    return [...this.bySweep];
  }

  /** The deletions that take one step each. */
  get steps(): readonly Deletion[] {
    return [...this.byName.values()].filter(({ matches }) => matches === undefined);
  }

  get hasSteps(): boolean {
    return this.byName.size > this.bySweep.size;
  }

  get first(): Deletion | undefined {
    return this.byName.values().next().value;
  }

  has({ name }: Deletion): boolean {
    return this.byName.has(name);
  }

  includes(deletion: Deletion): boolean {
    return this.byName.get(deletion.name) === deletion;
  }

  /** The deletions that this one makes superfluous. */
  coveredBy({ name, key }: Deletion): readonly Deletion[] {
    if (this.byName.size === 0) return [];
    const same = this.byName.get(name);
    const plain = this.ofKey(key).filter((each) => each.plain && each !== same);
    return same ? [same, ...plain] : plain;
  }

  ofKey(key: string | undefined): readonly Deletion[] {
    if (key === undefined) return [];
    const deletions = this.byKey.get(key);
    return deletions ? [...deletions] : [];
  }

  add(deletion: Deletion): void {
    const { name, key, tag, matches } = deletion;
    this.delete(this.byName.get(name));
    this.byName.set(name, deletion);
    this.size = this.byName.size;
    if (tag !== undefined) this.byTag.add(deletion);
    if (matches) this.bySweep.add(deletion);
    if (key === undefined) return;
    const ofKey = this.byKey.get(key);
    if (ofKey) ofKey.add(deletion);
    else this.byKey.set(key, new Set([deletion]));
  }

  /** Removes this deletion, but not one that has replaced it. */
  delete(deletion: Deletion | undefined): void {
    if (!deletion || !this.includes(deletion)) return;
    const { name, key } = deletion;
    this.byName.delete(name);
    this.size = this.byName.size;
    this.byTag.delete(deletion);
    this.bySweep.delete(deletion);
    if (key === undefined) return;
    const ofKey = this.byKey.get(key);
    ofKey?.delete(deletion);
    if (ofKey?.size === 0) this.byKey.delete(key);
  }

  /** The deletion that covers the key: its value must not be read. */
  covering(key: string): Deletion | undefined {
    if (this.byName.size === 0) return undefined;
    const [ofKey] = this.byKey.get(key) ?? [];
    if (ofKey) return ofKey;
    for (const deletion of this.bySweep) if (deletion.matches?.(key)) return deletion;
    return undefined;
  }

  /** The deletion that covers one of the tags: a value with it must not be read. */
  coveringTags(tags: TagStamp | undefined): Deletion | undefined {
    if (!tags) return undefined;
    for (const deletion of this.byTag) {
      if (deletion.tag !== undefined && Object.hasOwn(tags, deletion.tag)) return deletion;
    }
    return undefined;
  }
}
