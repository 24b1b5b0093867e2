import type { LoggerService } from '@nestjs/common';
import type { BackendCalls } from '../backend/backend-calls.js';
import type { Grant } from './grant.js';
import type { Lease } from './lease.js';
import { currentInstant } from './lease-clock.js';
import { backoff } from '../../timing/backoff.js';
import { LinkedList } from '../../timing/linked-list.js';
import { onceRead } from '../../timing/once-read.js';

/** What the watchdog knows of one grant. */
export interface Watch {
  readonly grant: Grant;
  /** On the monotonic clock; `Infinity` without renewal. */
  dueAt: number;
  /** Nothing is due until the renewal under way is answered or given up. */
  underWay: boolean;
  failures: number;
}

/** Names renewed in one call, or those of one lease if it has more. Redisson's `lockWatchdogBatchSize` is the same. */
const BATCH = 100;
/** What falls due within this share of its interval is renewed with what is due now. */
const COALESCE = 0.05;
/** The clocks are compared at least this often (ms), to notice that the machine was suspended. */
const LONGEST_NAP = 1_000;

/**
 * Keeps the grants of one backend: renews those that ask for it, many in one round trip, and ends each lease at its
 * local deadline whether or not the backend answers. One timer for all, which never keeps the process alive.
 */
export class Watchdog {
  private readonly watches = new LinkedList<Watch>();
  private timer: NodeJS.Timeout | undefined;
  private wakeAt = Infinity;

  constructor(
    private readonly calls: BackendCalls,
    private readonly logger: Pick<LoggerService, 'warn'>,
  ) {}

  /** From here on the grant is renewed as its holder wants it; called again when the holder changes. */
  watch(grant: Grant): void {
    const due = dueAt(grant);
    if (grant.watch) {
      grant.watch.value.dueAt = due;
      // The end of the lease is watched already.
      if (grant.holder?.limited === false) return this.wakeNoLaterThan(due);
    } else grant.watch = this.watches.push({ grant, dueAt: due, underWay: false, failures: 0 });
    this.wakeNoLaterThan(Math.min(due, performance.now() + remainingOf(grant)));
  }

  /** From here on the grant is never renewed again. */
  unwatch(grant: Grant): void {
    grant.watch?.leave();
    grant.watch = undefined;
  }

  /** The backend says that whatever this ticket owned was released by force. */
  revoke(ticket: string): void {
    for (const { grant } of this.watches.toArray()) if (grant.ticket === ticket) grant.lose('taken');
  }

  /** The backend may have lost what it kept: asks for all leases at once, also for those that nobody renews. */
  renewAll(): void {
    const held = this.watches.toArray().filter(({ grant }) => remainingOf(grant) > 0);
    this.renewInBatches(held.map(({ grant }) => grant));
  }

  stop(): void {
    clearTimeout(this.timer);
    for (const { grant } of this.watches.toArray()) this.unwatch(grant);
  }

  private wakeNoLaterThan(at: number): void {
    if (at >= this.wakeAt) return;
    clearTimeout(this.timer);
    this.wakeAt = at;
    const nap = Math.max(0, Math.min(Math.floor(at - performance.now()), LONGEST_NAP));
    this.timer = setTimeout(() => this.wake(), nap);
    this.timer.unref();
  }

  private wake(): void {
    this.wakeAt = Infinity;
    const now = performance.now();
    const due: Grant[] = [];
    let next = Infinity;
    for (const watch of this.watches.toArray()) {
      const { grant } = watch;
      const remaining = remainingOf(grant);
      if (remaining === 0) {
        if (grant.renewing && grant.holder) onceRead(() => this.settle(grant));
        else this.unwatch(grant);
        continue;
      }
      const slack = COALESCE * (grant.holder?.options.renewal?.interval ?? 0);
      if (!watch.underWay && watch.dueAt <= now + slack) due.push(grant);
      else if (!watch.underWay) next = Math.min(next, watch.dueAt);
      next = Math.min(next, now + remaining);
    }
    this.renewInBatches(due);
    if (this.watches.first) this.wakeNoLaterThan(Math.min(next, now + LONGEST_NAP));
  }

  private renewInBatches(grants: readonly Grant[]): void {
    for (const batch of batchesOf(grants)) this.renew(batch);
  }

  private renew(grants: readonly Grant[]): void {
    const sentAt = currentInstant();
    const unanswered = new Set(grants);
    const limit = Math.min(...grants.map((grant) => this.timeoutOf(grant)));
    for (const grant of grants) this.markUnderWay(grant);
    const giveUp = () => {
      this.failed([...unanswered], `no answer within ${Math.round(limit)} ms`);
      unanswered.clear();
    };
    const timer = setTimeout(() => onceRead(giveUp), limit).unref();

    const requests = grants.map(({ names, ticket, holder }) => ({
      names,
      ticket,
      ttl: holder ? leaseWanted(holder) : 1,
    }));
    const failures: Grant[] = [];
    const answers = this.calls.renew(requests).map(async (pending, index) => {
      const grant = grants[index] as Grant;
      try {
        const answer = await pending;
        if (answer.status === 'renewed') grant.renewed(sentAt, answer.remaining);
        else grant.lose('taken');
        if (answer.status === 'renewed' && answer.waiting) grant.listener?.wantedElsewhere(grant.ticket);
        // An answer that comes after its time-out still counts; the next try is then already on its way.
        if (unanswered.delete(grant)) this.succeeded(grant);
      } catch (error) {
        if (unanswered.delete(grant)) failures.push(grant);
        return error;
      }
      return undefined;
    });
    void Promise.all(answers).then((errors) => {
      clearTimeout(timer);
      const cause = errors.find((error) => error !== undefined);
      if (failures.length > 0) this.failed(failures, describe(cause));
    });
  }

  /** Its time is over, and what has arrived was read: now it is renewed, or lost. */
  private settle(grant: Grant): void {
    if (!grant.watch) return;
    if (grant.holder?.lost) this.unwatch(grant);
    else this.wakeNoLaterThan(performance.now() + remainingOf(grant));
  }

  private succeeded(grant: Grant): void {
    const watch = grant.watch?.value;
    if (!watch) return;
    watch.failures = 0;
    this.reschedule(grant, grant.holder?.options.renewal ? dueAt(grant) : Infinity);
  }

  private markUnderWay(grant: Grant): void {
    const watch = grant.watch?.value;
    if (watch) watch.underWay = true;
  }

  /** Repeated at once, then with backoff, until the deadline; told once until it succeeds again. */
  private failed(grants: readonly Grant[], why: string): void {
    const news: string[] = [];
    for (const grant of grants) {
      const watch = grant.watch?.value;
      if (!watch) continue;
      watch.failures += 1;
      if (watch.failures === 1) news.push(...grant.names);
      const pause = watch.failures === 1 ? 0 : backoff(watch.failures - 2);
      this.reschedule(grant, performance.now() + pause);
    }
    if (news.length === 0) return;
    const shown = news
      .slice(0, 3)
      .map((name) => `"${name}"`)
      .join(', ');
    const rest = news.length > 3 ? ` and ${news.length - 3} more` : '';
    this.logger.warn(`Renewal of ${shown}${rest} failed: ${why}; repeated until the lease ends`);
  }

  private reschedule(grant: Grant, at: number): void {
    const watch = grant.watch?.value;
    if (!watch) return;
    watch.dueAt = at;
    watch.underWay = false;
    this.wakeNoLaterThan(at);
  }

  private timeoutOf({ holder }: Grant): number {
    const { renewal, ttl } = holder?.options ?? { renewal: undefined, ttl: Infinity };
    return renewal?.timeout ?? Math.min(this.calls.commandTimeout, ttl / 4);
  }
}

function batchesOf(grants: readonly Grant[]): Grant[][] {
  const batches: Grant[][] = [];
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

/** When the grant is to be renewed next: a claim, which is shorter than the holder's `ttl`, sooner in proportion. */
function dueAt(grant: Grant): number {
  const { holder } = grant;
  if (!holder) return Infinity;
  const { renewal, ttl } = holder.options;
  if (renewal) return grant.dueAfter(renewal.interval, ttl);
  return holder.outlastsGrant ? performance.now() : Infinity;
}

/**
 * Milliseconds of lease to ask for: a lease that nobody renews is only asked about, once it is as long as was promised.
 */
function leaseWanted(holder: Lease): number {
  return holder.options.renewal || holder.outlastsGrant ? holder.options.ttl : 1;
}

function remainingOf({ holder }: Grant): number {
  return holder?.remaining() ?? 0;
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : 'unknown error';
}
