import type { SemaphoreStore } from '../../contracts/primitive-stores.js';
import type { Warnings } from '../../errors/limited-log.js';
import { backoff, currentInstant, onceRead } from '../../timing/clock.js';
import { LinkedList } from '../../timing/brief-collections.js';
import type { Timeout } from '../../timing/timeouts.js';
import type { PrimitiveCalls } from '../runtime.js';
import { trustedOf, type HeldPermit } from './held-permit.js';

/** A renewal that falls due within this share of the time between two renewals joins those that are due now. */
const COALESCE = 0.06;
/** So does one that falls due within this share of that time, and before their next one. */
const SOON = 0.5;
/** The longest sleep (ms): each wake-up compares the clocks, and so notices that the machine was suspended. */
const LONGEST_NAP = 1_000;
/** With less than this share of its `ttl`, no holder begins before the renewal is on its way. */
export const ENOUGH_TO_START = 0.6;

/**
 * Renews the permits of one backend, all that are due in one round trip, and ends each at its local deadline whether or
 * not the store answers. One timer serves all; it never keeps the process alive.
 */
export class PermitWatchdog {
  private readonly permits = new LinkedList<HeldPermit>();
  private timer: Timeout | undefined;
  private wakeAt = Infinity;

  constructor(
    private readonly store: SemaphoreStore,
    private readonly calls: PrimitiveCalls,
    private readonly logger: Warnings,
  ) {}

  /** The permits that are held. */
  get held(): readonly HeldPermit[] {
    return this.permits.toArray();
  }

  /**
   * Starts to renew the permit, before its holder runs: that may block the event loop from its first line, so the
   * renewal of a short lease, such as a claim, is sent now.
   */
  watch(permit: HeldPermit): void {
    permit.place = this.permits.push(permit);
    const left = trustedOf(permit.turn.lease);
    this.wakeNoLaterThan(Math.min(permit.dueAt, performance.now() + left));
    if (left < ENOUGH_TO_START * Math.min(permit.ttl, permit.turn.most) && !permit.renewing) this.renew(permit);
  }

  /** Asks for all permits at once: the store was unreachable and may have lost its data. */
  renewAll(): void {
    for (const permit of this.permits.toArray()) if (permit.remaining() > 0 && !permit.renewing) this.renew(permit);
  }

  /** Never renews the permit again. */
  unwatch(permit: HeldPermit): void {
    permit.place?.leave();
    permit.place = undefined;
  }

  private wakeNoLaterThan(at: number): void {
    if (at >= this.wakeAt) return;
    this.timer?.leave();
    this.wakeAt = at;
    this.timer = this.calls.ticks.start(Math.min(at, performance.now() + LONGEST_NAP), this.wake);
  }

  private readonly wake = (): void => {
    this.wakeAt = Infinity;
    const now = performance.now();
    const soon: HeldPermit[] = [];
    let tick = 0;
    let next = Infinity;
    for (const permit of this.permits.toArray()) {
      const remaining = permit.remaining();
      // A permit without lease left is lost by now, unless the answer to a renewal may wait to be read.
      if (remaining === 0) {
        if (permit.renewing) onceRead(() => this.settle(permit));
        continue;
      }
      next = Math.min(next, now + remaining);
      if (permit.renewing) continue;
      const { dueAt, period } = permit;
      if (dueAt <= now + COALESCE * period) {
        this.renew(permit);
        if (permit.failures === 0) tick = tick === 0 ? period : Math.min(tick, period);
      } else {
        next = Math.min(next, dueAt);
        if (dueAt <= now + SOON * period) soon.push(permit);
      }
    }
    const beforeNext = now + (1 - COALESCE) * tick;
    for (const permit of soon) if (permit.place && permit.dueAt <= beforeNext) this.renew(permit);
    if (this.permits.first) this.wakeNoLaterThan(Math.min(next, now + LONGEST_NAP));
  };

  private settle(permit: HeldPermit): void {
    permit.expire();
    if (!permit.isOver) this.wakeNoLaterThan(performance.now() + permit.remaining());
  }

  private renew(permit: HeldPermit): void {
    const { ttl, key, turn } = permit;
    const { request } = turn;
    const sentAt = currentInstant();
    const limit = Math.min(this.calls.commandTimeout, ttl / 4, Math.max(1, permit.remaining() / 2));
    // The permit may have passed to another holder since.
    const answered = (remaining: number | undefined) => {
      if (remaining === undefined) turn.holder?.lose('taken');
      else turn.holder?.renewed(sentAt, remaining);
    };
    turn.renewing = true;
    this.calls
      .run('renewal of a permit of semaphore', key, () => this.store.renew({ ...request, ttl }), {
        limit,
        // A late answer still moves the deadline; the next renewal has already been sent.
        late: answered,
      })
      .then(
        (remaining) => {
          permit.failures = 0;
          turn.renewing = false;
          answered(remaining);
          if (turn.holder) this.reschedule(turn.holder);
        },
        (error: Error) => {
          turn.renewing = false;
          this.failed(turn.holder ?? permit, error);
        },
      );
  }

  /** Repeats at once, then after a growing pause, until the deadline. Logs the first failure in a row only. */
  private failed(permit: HeldPermit, error: Error): void {
    if (permit.isOver) return;
    permit.failures += 1;
    if (permit.failures === 1) this.logger.warn(`${error.message}; repeated until the lease ends`);
    permit.dueAt = performance.now() + (permit.failures === 1 ? 0 : backoff(permit.failures - 2));
    this.reschedule(permit);
  }

  private reschedule(permit: HeldPermit): void {
    if (!permit.isOver) this.wakeNoLaterThan(Math.min(permit.dueAt, performance.now() + permit.remaining()));
  }
}
