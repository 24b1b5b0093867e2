import type { Warnings } from '../../errors/limited-log.js';
import type { RenewAnswer } from '../../contracts/lock-requests.js';
import type { Pending } from '../../contracts/store.js';
import type { LockLostReason } from '../../errors/lock-errors.js';
import { lockChannels } from '../../events/lock-channels.js';
import { quoted } from '../../keys/key-part.js';
import {
  sharedInstant,
  type Ticks,
  type Timeout,
  backoff,
  currentInstant,
  onceRead,
  type Instant,
} from '../../timing/clock.js';
import { Roster } from '../../timing/brief-collections.js';
import type { Grant, GrantHolder } from './grant.js';
import type { RenewalRequest } from './store.js';

/** A renewal that falls due within this share of its interval joins those that are due now. */
const COALESCE = 0.05;
/** So does one that falls due within this share of it and before their next renewal: then all are due together. */
const SOON = 0.5;
/** The longest sleep (ms): each wake-up compares the clocks, and so notices that the machine was suspended. */
const LONGEST_NAP = 1_000;
/**
 * How many names are renewed in one call (those of one grant stay together), as in Redisson's `lockWatchdogBatchSize`.
 */
const BATCH = 100;
/** With less than this share of its `ttl`, no holder begins before the renewal is on its way. */
export const ENOUGH = 0.6;
/** A hold is renewed after this time (ms) at the latest: somebody may have taken the name away. */
const LONGEST_UNRENEWED = 10_000;
/** A hold without renewal is looked at after this time (ms) at the latest, and after a third of its `ttl`. */
const LONGEST_UNCHECKED = 5_000;
/** The shortest pause (ms) between two renewals: a store may answer that nothing is left. */
const SHORTEST_PAUSE = 10;
/** What is asked for a grant without a holder: only whether it is still there. */
const NOT_HELD: GrantHolder['options'] = { ttl: Infinity, renewal: undefined };
/** After this time (ms) a hold may go on for long: the message of a forced release must reach it. */
const LONG_HOLD = 1_000;

/** How the grants at one backend are renewed. */
export interface RenewalCalls<Renewed extends Grant> {
  readonly backend: { readonly traits: { readonly writesAtOnce?: boolean } };
  readonly ticks: Ticks;
  readonly commandTimeout: number;
  /** Who holds them, in warnings. */
  readonly source: { readonly label: string };
  /** One answer for each request, without a time limit: a late one still counts. */
  sendRenewals(requests: readonly (RenewalRequest & { readonly grant: Renewed })[]): readonly Pending<RenewAnswer>[];
  /** The error for a renewal of these names that was rejected with `error`. */
  explain(operation: 'renew', names: readonly string[], error: unknown): Error;
  /** The backend answered `remaining` ms to a request for `asked` ms that was sent at `sentAt`. */
  renewed(grant: Renewed, sentAt: Instant, remaining: number, asked: number): void;
}

/**
 * Renews the grants of one backend for their holders, many in one round trip, and ends each lease at its local deadline
 * whether or not the backend answers. One timer serves all; it never keeps the process alive.
 */
export class Watchdog<Renewed extends Grant = Grant> {
  private readonly grants = new Roster<Renewed>();
  private timer: Timeout | undefined = undefined;
  private wakeAt = Infinity;

  constructor(
    private readonly calls: RenewalCalls<Renewed>,
    private readonly logger: Warnings,
    /** Called again and again while there are holds that have lasted for a while. */
    private readonly onLongHold = () => {},
    /** What a warning calls the names. */
    private readonly shown: (names: readonly string[]) => string = quoted,
  ) {}

  /** How many grants it watches. */
  get size(): number {
    return this.grants.size;
  }

  /** Milliseconds by which the most overdue renewal is late; 0 if none is. */
  get lag(): number {
    const now = performance.now();
    let lag = 0;
    for (const { renewing, dueAt } of this.grants.toArray()) if (!renewing) lag = Math.max(lag, now - dueAt);
    return lag;
  }

  /**
   * Starts to renew the grant as its holder's options say. Call it again when the holder changes, before the holder
   * runs: it may block the event loop from its first line, so the renewal of a short lease is sent now. `remaining`:
   * what was left of the grant a moment ago.
   */
  watch(grant: Renewed, remaining = grant.remaining()): void {
    grant.dueAt = nextDue(grant);
    const { holder } = grant;
    // The end of a grant that was watched before is watched already.
    let end = Infinity;
    if (grant.index < 0) {
      this.grants.add(grant);
      end = performance.now() + remaining;
    }
    if (!holder || holder.limits) end = performance.now() + remainingOf(grant);
    const at = Math.min(grant.dueAt, end);
    if (at < this.wakeAt) this.wakeNoLaterThan(at);
    if (isShort(grant, holder, remaining) && !grant.renewing) this.renew([grant]);
  }

  /** Sends the renewal now if the holder, which begins, has little of its `ttl` left. */
  renewIfShort(grant: Renewed, holder = grant.holder): void {
    if (isShort(grant, holder, grant.remaining()) && !grant.renewing) this.renew([grant]);
  }

  /** Whether the holder has little of its `ttl` left, and the renewal may still be on this side. */
  awaitsRenewal(grant: Grant): boolean {
    return !this.calls.backend.traits.writesAtOnce && isShort(grant, grant.holder, grant.remaining());
  }

  /** Resolves when the lease has been renewed, or has ended. */
  async renewedOrOver(grant: Grant): Promise<void> {
    while (grant.holder?.held && this.awaitsRenewal(grant)) {
      await new Promise<void>((resolve) => {
        const wake = () => {
          clearTimeout(nap);
          grant.onRenewed?.delete(wake);
          resolve();
        };
        const nap = setTimeout(wake, Math.min(LONGEST_NAP, Math.max(1, remainingOf(grant)))).unref();
        (grant.onRenewed ??= new Set()).add(wake);
      });
    }
  }

  /** Never renews the grant again. */
  unwatch(grant: Grant): void {
    this.grants.remove(grant as Renewed);
    grant.renewing = false;
    if (grant.failures) grant.failures = 0;
  }

  /** Called when the backend reported that these tickets no longer own their names. */
  lose(tickets: readonly string[], reason: LockLostReason): void {
    const lost = new Set(tickets);
    for (const grant of this.grants.toArray()) if (lost.has(grant.ticket)) grant.lose(reason);
  }

  /**
   * Checks all grants at once, including those without renewal: the backend was unreachable and may have lost its data.
   */
  renewAll(): void {
    this.renewInBatches(this.grants.toArray().filter((grant) => remainingOf(grant) > 0));
  }

  stop(): void {
    this.timer?.leave();
    for (const grant of this.grants.toArray()) this.unwatch(grant);
  }

  /** Looks at all grants at `at` (monotonic, ms) at the latest. */
  wakeNoLaterThan(at: number): void {
    if (at >= this.wakeAt) return;
    this.timer?.leave();
    this.wakeAt = at;
    this.timer = this.calls.ticks.start(Math.min(at, performance.now() + LONGEST_NAP), this.wake);
  }

  private readonly wake = (): void => {
    this.wakeAt = Infinity;
    const now = performance.now();
    const due: Renewed[] = [];
    const soon: Renewed[] = [];
    let tick = 0;
    let next = Infinity;
    let lasts = false;
    for (const grant of this.grants.toArray()) {
      if (grant.index < 0) continue;
      lasts ||= now - grant.since >= LONG_HOLD;
      const remaining = remainingOf(grant);
      if (remaining === 0) {
        if (grant.renewing && grant.holder) onceRead(() => this.settle(grant));
        else this.unwatch(grant);
        continue;
      }
      next = Math.min(next, now + remaining);
      if (grant.renewing) continue;
      const period = periodOf(grant.holder);
      if (grant.dueAt <= now + COALESCE * period) {
        due.push(grant);
        if (!grant.failures && period > 0) tick = tick === 0 ? period : Math.min(tick, period);
      } else {
        next = Math.min(next, grant.dueAt);
        if (grant.dueAt <= now + SOON * period) soon.push(grant);
      }
    }
    const beforeNext = now + (1 - COALESCE) * tick;
    for (const grant of soon) if (grant.index >= 0 && grant.dueAt <= beforeNext) due.push(grant);
    this.renewInBatches(due);
    if (lasts) this.onLongHold();
    if (this.grants.size > 0) this.wakeNoLaterThan(Math.min(next, now + LONGEST_NAP));
  };

  private renewInBatches(grants: readonly Renewed[]): void {
    for (const batch of batchesOf(grants)) this.renew(batch);
  }

  private renew(grants: readonly Renewed[]): void {
    const sentAt = currentInstant();
    const unanswered = new Set(grants);
    const requests: (RenewalRequest & { readonly grant: Renewed })[] = [];
    let limit = Infinity;
    for (const grant of grants) {
      const { names, ticket, holder } = grant;
      const { renewal, ttl } = holder?.options ?? NOT_HELD;
      const { commandTimeout } = this.calls;
      limit = Math.min(limit, renewal?.timeout ?? Math.min(commandTimeout, ttl / 4, grant.granted / 4));
      // A lease without renewal lasts long enough already, and is only checked.
      const renews = renewal !== undefined || holder?.outlastsGrant === true;
      requests.push({ names, ticket, ttl: renews ? ttl : 1, grant });
      grant.renewing = true;
    }
    const giveUp = () => {
      this.failed([...unanswered], `no answer within ${Math.round(limit)} ms`);
      unanswered.clear();
    };
    const timer = setTimeout(() => onceRead(giveUp), limit).unref();

    const failures: Renewed[] = [];
    let why = '';
    let underWay = grants.length;
    for (const [index, sent] of this.calls.sendRenewals(requests).entries()) {
      const { grant, names, ttl } = requests[index] as (typeof requests)[number];
      const settled = (outcome: RenewAnswer | Error) => {
        const inTime = unanswered.delete(grant);
        if (outcome instanceof Error) {
          if (inTime) failures.push(grant);
          why ||= outcome.message;
        } else {
          if (outcome.status === 'renewed') {
            this.calls.renewed(grant, sentAt, outcome.remaining, ttl);
            if (lockChannels.renewed.hasSubscribers) publishRenewed(grant, sentAt);
            if (outcome.waiting) grant.listener?.wantedElsewhere(grant.ticket);
          } else if (!grant.ending) grant.lose('taken');
          // A late answer still moves the deadline; the next renewal has already been sent.
          if (inTime) {
            if (grant.failures) grant.failures = 0;
            grant.renewing = false;
            if (grant.index >= 0) this.renewAt(grant, nextDue(grant, true));
          }
        }
        underWay -= 1;
        if (underWay > 0) return;
        clearTimeout(timer);
        if (failures.length > 0) this.failed(failures, why);
      };
      sent.then(settled, (error: unknown) => settled(this.calls.explain('renew', names, error)));
    }
  }

  /**
   * Called when the deadline has passed and all answers that had arrived were read: one renewed the grant, or it is
   * lost.
   */
  private settle(grant: Grant): void {
    if (grant.index < 0) return;
    if (grant.holder?.lost) this.unwatch(grant);
    else this.wakeNoLaterThan(performance.now() + remainingOf(grant));
  }

  /** Repeats at once, then after a growing pause, until the deadline. Logs the first failure in a row only. */
  private failed(grants: readonly Grant[], why: string): void {
    const newlyFailed: string[] = [];
    for (const grant of grants) {
      if (grant.index < 0) continue;
      const failures = (grant.failures = (grant.failures ?? 0) + 1);
      if (lockChannels.renewFailed.hasSubscribers) publishRenewFailed(grant, why);
      if (failures === 1) newlyFailed.push(...grant.names);
      const pause = failures === 1 ? 0 : backoff(failures - 2);
      grant.renewing = false;
      this.renewAt(grant, performance.now() + pause);
    }
    if (newlyFailed.length === 0) return;
    const shown = this.shown(newlyFailed.slice(0, 3));
    const rest = newlyFailed.length > 3 ? ` and ${newlyFailed.length - 3} more` : '';
    this.logger.warn(
      `Renewal of ${shown}${rest} failed for ${this.calls.source.label}: ${why}; repeated until the lease ends`,
      `renewal ${shown}${rest}`,
    );
  }

  private renewAt(grant: Grant, at: number): void {
    grant.dueAt = Math.floor(at);
    this.wakeNoLaterThan(at);
  }
}

/**
 * When the next renewal is due, or the next check without renewal: for a claim, which is shorter than the holder's
 * `ttl`, sooner in proportion. After one that succeeded (`again`), together with others.
 */
function nextDue({ holder, granted, confirmedAt }: Grant, again = false): number {
  if (!holder) return Infinity;
  const { renewal, ttl } = holder.options;
  if (!renewal && !again && holder.outlastsGrant) return Math.floor(performance.now());
  const interval = renewal ? Math.min(renewal.interval, LONGEST_UNRENEWED) : Math.min(ttl / 3, LONGEST_UNCHECKED);
  const share = Math.min(1, granted / ttl);
  const due = confirmedAt + Math.max(interval * share, Math.min(interval, SHORTEST_PAUSE));
  return Math.floor(renewal && again && granted >= ttl ? sharedInstant(due, interval) : due);
}

/** Whether the holder has little of its `ttl` left, and is to have more. */
function isShort({ most }: Grant, holder: GrantHolder | undefined, remaining: number): boolean {
  if (!holder) return false;
  const { ttl } = holder.options;
  if (remaining >= ENOUGH * (most > 0 ? Math.min(ttl, most) : ttl)) return false;
  return holder.options.renewal !== undefined || holder.outlastsGrant;
}

/** The time (ms) from one renewal to the next; 0 for none. */
function periodOf(holder: GrantHolder | undefined): number {
  return Math.min(holder?.options.renewal?.interval ?? 0, LONGEST_UNRENEWED);
}

function remainingOf({ holder }: Grant): number {
  return holder?.remaining() ?? 0;
}

/** The grants in batches of as many names as one call renews. */
function batchesOf<Renewed extends Grant>(grants: readonly Renewed[]): Renewed[][] {
  const batches: Renewed[][] = [];
  let names = BATCH;
  for (const grant of grants) {
    names += grant.names.length;
    if (names <= BATCH) batches.at(-1)?.push(grant);
    else {
      batches.push([grant]);
      names = grant.names.length;
    }
  }
  return batches;
}

/** Publishes that the backend has confirmed the renewal that was sent at `sentAt`. */
function publishRenewed({ holder, ticket, dueAt }: Grant, sentAt: Instant): void {
  const call = holder?.call;
  if (!call) return;
  const { fencingToken } = holder;
  const took = performance.now() - sentAt.monotonic;
  const lag = Math.max(0, sentAt.monotonic - dueAt);
  lockChannels.renewed.publish({ call, owner: ticket, fencingToken, took, lag });
}

/** Publishes that a renewal of the grant has failed. */
function publishRenewFailed({ holder, ticket, failures = 0 }: Grant, why: string): void {
  const call = holder?.call;
  if (!call) return;
  const { fencingToken } = holder;
  lockChannels.renewFailed.publish({ call, owner: ticket, fencingToken, failures, why });
}
