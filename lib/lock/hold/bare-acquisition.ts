import type { Warnings } from '../../errors/limited-log.js';
import { quoted } from '../../keys/key-part.js';
import type { Duration } from '../../options/checks.js';
import type { HeldLock } from './held-lock.js';
import type { Frame, HoldContext, HoldScope } from './hold-context.js';
import type { Lock } from './lock.js';

/** A longer chain drops its ended acquisitions whenever it has doubled since the last time. */
const LONGEST_CHAIN = 16;

/** How many frames of a stack are kept: enough to reach the caller's own code. */
const FRAMES = 8;

/**
 * The result of `acquire`. The library refers to the hold and never to this object, so that it is garbage-collected
 * when its caller drops it; `DroppedLocks` then finds a hold that was never released.
 */
export class AcquiredLock implements Lock {
  constructor(private readonly hold: HeldLock) {}

  get keys(): readonly string[] {
    return this.hold.keys;
  }

  get owner(): string {
    return this.hold.owner;
  }

  get fencingToken(): number {
    return this.hold.fencingToken;
  }

  get signal(): AbortSignal {
    return this.hold.signal;
  }

  get held(): boolean {
    return this.hold.held;
  }

  remaining(): number {
    return this.hold.remaining();
  }

  assertHeld(): void {
    this.hold.assertHeld();
  }

  extend(ttl?: Duration): Promise<void> {
    return this.hold.extend(ttl);
  }

  release(): Promise<void> {
    return this.hold.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.hold[Symbol.asyncDispose]();
  }
}

/**
 * One bare `acquire`, in the chain of those of its async context: code that runs after it in that context, and what
 * that code calls, may release its hold by name. Refers to the hold and never to the caller's `Lock`, which could
 * otherwise never be garbage-collected.
 */
export class BareAcquisition implements Frame {
  /** What it got, even after its loss; `null` while it waits, `undefined` after the release, and if it failed. */
  hold: HeldLock | null | undefined = null;
  /** Where it was called; absent in production, and without renewal. */
  declare origin: Origin | undefined;
  /** How many acquisitions may follow before the chain is shortened. */
  private room: number;

  constructor(
    readonly of: HoldContext,
    readonly names: readonly string[],
    private readonly around: HoldScope | undefined,
    /** The previous acquisition in its context. */
    public before: BareAcquisition | undefined,
    origin: Origin | undefined,
  ) {
    if (origin) this.origin = origin;
    this.room = (before ? before.room : LONGEST_CHAIN) - 1;
    if (this.room < 0) this.shorten();
  }

  get store(): this {
    return this;
  }

  get others(): undefined {
    return undefined;
  }

  /** The scope in which it was called, or else the nearest open one around that. */
  get scope(): HoldScope | undefined {
    return this.around?.nearestOpen;
  }

  /** Called when its hold was released, or when it failed. */
  close(): void {
    this.hold = undefined;
    if (this.origin) this.origin = undefined;
  }

  /** Whether neither it nor one before it has a hold or waits for one. */
  get ended(): boolean {
    if (this.hold !== undefined) return false;
    return this.before?.ended ?? true;
  }

  private get inUse(): boolean {
    return this.hold !== undefined && !this.hold?.isLost;
  }

  /**
   * Drops the ended acquisitions before it, except the one directly after an acquisition of the same names in use:
   * `holdOf` needs that one to decide what the names mean. Other contexts share a part of the chain and must find the
   * same result from wherever they begin.
   */
  private shorten(): void {
    const chain: BareAcquisition[] = [];
    for (let each = this.before; each; each = each.before) chain.push(each);
    const lastInUse = new Set<string>();
    const kept: BareAcquisition[] = [];
    for (const each of chain.toReversed()) {
      const id = idOf(each.names);
      if (each.inUse) lastInUse.add(id);
      else if (!lastInUse.delete(id)) continue;
      kept.push(each);
    }
    let before: BareAcquisition | undefined;
    for (const each of kept) {
      each.before = before;
      before = each;
    }
    this.before = before;
    const length = 1 + kept.length;
    this.room = Math.max(LONGEST_CHAIN, 2 * length) - length;
  }
}

function idOf(names: readonly string[]): string {
  return names.length === 1 ? (names[0] as string) : names.join('\u0000');
}

/**
 * Warns of a lock whose `Lock` was garbage-collected while it was held, because no code can release it any more, and
 * stops its renewal, so that its lease ends. Does nothing in an application that releases by name, which needs no
 * `Lock`.
 */
export class DroppedLocks {
  private readonly origins = process.env.NODE_ENV !== 'production';
  private releasesByName = false;
  /** Has the `Lock` of each caller, and the hold to look at once it is garbage. */
  readonly registry = new FinalizationRegistry<HeldLock>((hold) => this.dropped(hold));

  constructor(
    private readonly logger: Warnings,
    private readonly label: string,
  ) {}

  /**
   * The stack of the running code, before its first `await`; `undefined` in production, where it would cost too much.
   */
  origin(): Origin | undefined {
    if (!this.origins) return undefined;
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = FRAMES;
    const origin: Origin = {};
    Error.captureStackTrace(origin);
    Error.stackTraceLimit = stackTraceLimit;
    return origin;
  }

  /** Called when the application has released by name what an `acquire` got. */
  releasedByName(): void {
    this.releasesByName = true;
  }

  private dropped(hold: HeldLock): void {
    if (this.releasesByName || hold.isReleased || hold.isLost) return;
    hold.orphan();
    const shown = quoted(hold.keys);
    const origin = hold.context instanceof BareAcquisition ? hold.context.origin : undefined;
    const where = origin?.stack?.replace(/^.*\n/, '') ?? 'run it with NODE_ENV other than "production" to see where';
    this.logger.warn(
      `Lock of ${shown} (owner ${hold.owner}, ${this.label}) was dropped without release(): it is not renewed any more and ends in ` +
        `${Math.ceil(hold.remaining())} ms. Keep the Lock and release it in "finally", or use withLock. Acquired at:\n${where}`,
    );
  }
}

/** Where an acquisition was called. */
interface Origin {
  readonly stack?: string;
}
