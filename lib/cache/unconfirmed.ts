import { setTimeout as sleep } from 'node:timers/promises';
import type { Pending } from '../backends/pending.js';
import type { CacheCounters } from './cache-stats.js';
import type { StoreCalls } from './store-calls.js';
import type { TagStamp } from './envelope.js';

/** A deletion, of what it covers. */
export interface Deletion {
  /** With its key or tag, for messages. */
  readonly what: string;
  /** What messages that name the key call it. */
  readonly operation: string;
  /** One of the same name takes its place. */
  readonly name: string;
  readonly key?: string;
  readonly tag?: string;
  readonly prefix?: string;
  send(): Pending<unknown>;
}

/** More than so many are not remembered one by one. */
const MOST = 100_000;
const FIRST_DELAY = 100;
const LONGEST_DELAY = 5_000;
/** How long (ms) the end of the application waits for what is not confirmed. */
const LAST_TRY = 500;
/** So many are sent at once. */
const BATCH = 64;

/**
 * Deletions that the store has not confirmed: they are repeated until it does, and what they cover is not read from the store
 * meanwhile.
 */
export class Unconfirmed {
  private readonly deletions = new Map<string, Deletion>();
  /** Those of them that cover more than one key: every read is compared with them. */
  private readonly byTag = new Set<Deletion>();
  private readonly byPrefix = new Set<Deletion>();
  private timer: NodeJS.Timeout | undefined;
  private delay = FIRST_DELAY;
  private sending = false;
  private stopped = false;

  constructor(
    private readonly calls: StoreCalls,
    private readonly counters: CacheCounters,
    private readonly logger: { warn(message: string): void; error(message: string): void },
    private readonly onConfirmed: (deletion: Deletion) => void,
  ) {
    calls.whenBack(() => this.sendNow());
  }

  get size(): number {
    return this.deletions.size;
  }

  add(deletion: Deletion): void {
    if (this.stopped) {
      this.logger.error(`The ${deletion.what} is not confirmed by Redis, and given up: the application has ended`);
      return;
    }
    if (this.deletions.size === 0) {
      this.logger.warn(
        `The ${deletion.what} is not confirmed by Redis; it and those that follow are repeated until they are`,
      );
    }
    if (this.deletions.size >= MOST && !this.deletions.has(deletion.name)) {
      this.logger.error(
        `The ${deletion.what} is given up: ${MOST} others are not confirmed either. What is stored may be served until it expires`,
      );
      return;
    }
    this.forget(this.deletions.get(deletion.name));
    this.deletions.set(deletion.name, deletion);
    if (deletion.tag !== undefined) this.byTag.add(deletion);
    if (deletion.prefix === undefined) return this.arm();
    this.byPrefix.add(deletion);
    void this.sweep(deletion);
  }

  find(name: string): Deletion | undefined {
    return this.deletions.size === 0 ? undefined : this.deletions.get(name);
  }

  /** What was sent after it has succeeded, and covers as much. Another one of its name may have come meanwhile, and stays. */
  confirmed(deletion: Deletion | undefined): void {
    if (deletion && this.isPending(deletion)) this.forget(deletion);
  }

  coversKey(key: string): boolean {
    if (this.deletions.size === 0) return false;
    if (this.deletions.has(keyDeletion(key))) return true;
    for (const { prefix } of this.byPrefix) if (prefix !== undefined && key.startsWith(prefix)) return true;
    return false;
  }

  coversTags(tags: TagStamp | undefined): boolean {
    if (!tags) return false;
    for (const { tag } of this.byTag) if (tag !== undefined && Object.hasOwn(tags, tag)) return true;
    return false;
  }

  /** Tries once more, for a short while, and names what is given up with the process. */
  async stop(): Promise<void> {
    if (this.stopped) return;
    this.stopped = true;
    clearTimeout(this.timer);
    if (this.deletions.size === 0) return;
    const lastTry = Promise.allSettled([
      this.sendAll(),
      ...[...this.byPrefix].map((deletion) => this.sweepOnce(deletion)),
    ]);
    await Promise.race([lastTry, sleep(LAST_TRY, undefined, { ref: false })]);
    if (this.deletions.size === 0) return;
    const [first] = this.deletions.values();
    this.logger.error(
      `${this.deletions.size} deletions were never confirmed by Redis, the ${first?.what} among them: what is stored may be served until it expires`,
    );
  }

  private isPending(deletion: Deletion): boolean {
    return this.deletions.get(deletion.name) === deletion;
  }

  private forget(deletion: Deletion | undefined): void {
    if (!deletion) return;
    this.deletions.delete(deletion.name);
    this.byTag.delete(deletion);
    this.byPrefix.delete(deletion);
  }

  private arm(): void {
    if (this.sending || this.stopped || this.deletions.size === this.byPrefix.size) return;
    this.timer ??= setTimeout(
      () => {
        this.timer = undefined;
        this.sendNow();
      },
      this.delay * (0.75 + Math.random() / 2),
    ).unref();
  }

  private sendNow(): void {
    if (this.sending || this.stopped || this.deletions.size === this.byPrefix.size) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.sending = true;
    this.sendAll().then(
      () => {
        this.sending = false;
        this.delay = FIRST_DELAY;
        this.arm();
      },
      () => {
        this.sending = false;
        this.delay = Math.min(this.delay * 2, LONGEST_DELAY);
        this.arm();
      },
    );
  }

  /** One that Redis refuses does not keep the others back. */
  private async sendAll(): Promise<void> {
    const all = [...this.deletions.values()].filter(({ prefix }) => prefix === undefined);
    let failure: unknown;
    for (let first = 0; first < all.length && !this.calls.breaker.isOpen; first += BATCH) {
      // One that was confirmed or replaced meanwhile could undo what came after it: begin a barrier that was lifted.
      const batch = all.slice(first, first + BATCH).filter((deletion) => this.isPending(deletion));
      const results = await Promise.allSettled(batch.map((deletion) => this.repeat(deletion)));
      failure ??= results.find((result) => result.status === 'rejected')?.reason;
    }
    if (failure !== undefined || this.calls.breaker.isOpen) throw failure ?? new Error('Redis is left alone');
  }

  private async repeat(deletion: Deletion): Promise<void> {
    const { operation, key = '' } = deletion;
    await this.calls.run(operation, key, () => deletion.send());
    this.repeated(deletion);
  }

  /** What looks at every key takes longer than one command may, and does not keep the others back. */
  private async sweep(deletion: Deletion): Promise<void> {
    for (let delay = FIRST_DELAY; ; delay = Math.min(delay * 2, LONGEST_DELAY)) {
      await sleep(delay * (0.75 + Math.random() / 2), undefined, { ref: false });
      if (this.stopped || !this.isPending(deletion)) return;
      try {
        return await this.sweepOnce(deletion);
      } catch {
        // It is tried again.
      }
    }
  }

  private async sweepOnce(deletion: Deletion): Promise<void> {
    await this.calls.runLong(deletion.what, async () => deletion.send());
    this.repeated(deletion);
  }

  private repeated(deletion: Deletion): void {
    this.counters.repeatedInvalidations += 1;
    this.confirmed(deletion);
    this.onConfirmed(deletion);
  }
}

/** What the deletion of one key is called. */
export function keyDeletion(key: string): string {
  return `k${key}`;
}
