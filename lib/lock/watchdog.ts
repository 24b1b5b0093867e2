import type { LoggerService } from '@nestjs/common';
import type { BackendCalls } from './backend-calls.js';
import type { Lease } from './lease.js';
import { currentInstant } from './lease-clock.js';

interface Watch {
  /** On the monotonic clock; `Infinity` while a renewal is under way, and without renewal. */
  dueAt: number;
  failures: number;
}

/** Leases renewed in one call. Redisson's `lockWatchdogBatchSize` is the same. */
const BATCH = 100;
/** What falls due within this share of its interval is renewed with what is due now. */
const COALESCE = 0.05;
/** The clocks are compared at least this often (ms), to notice that the machine was suspended. */
const LONGEST_NAP = 1_000;
const FIRST_BACKOFF = 25;
const LONGEST_BACKOFF = 1_000;

/**
 * Keeps the leases of one backend: renews those that ask for it, many in one round trip, and ends each at its local
 * deadline whether or not the backend answers. One timer for all, which never keeps the process alive.
 */
export class Watchdog {
  private readonly watches = new Map<Lease, Watch>();
  private timer: NodeJS.Timeout | undefined;
  private wakeAt = Infinity;

  constructor(
    private readonly calls: BackendCalls,
    private readonly logger: Pick<LoggerService, 'warn'>,
  ) {}

  watch(lease: Lease): void {
    const { sentAt, options } = lease.grant;
    const dueAt = options.renewal ? sentAt.monotonic + options.renewal.interval : Infinity;
    this.watches.set(lease, { dueAt, failures: 0 });
    this.wakeNoLaterThan(Math.min(dueAt, performance.now() + lease.remaining()));
  }

  /** From here on the lease is never renewed again. */
  unwatch(lease: Lease): void {
    this.watches.delete(lease);
  }

  stop(): void {
    clearTimeout(this.timer);
    this.watches.clear();
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
    const due: Lease[] = [];
    let next = Infinity;
    for (const [lease, watch] of this.watches) {
      const remaining = lease.remaining();
      if (remaining === 0) {
        this.watches.delete(lease);
        continue;
      }
      const slack = COALESCE * (lease.grant.options.renewal?.interval ?? 0);
      if (watch.dueAt <= now + slack) due.push(lease);
      else next = Math.min(next, watch.dueAt);
      next = Math.min(next, now + remaining);
    }
    for (let first = 0; first < due.length; first += BATCH) this.renew(due.slice(first, first + BATCH));
    if (this.watches.size > 0) this.wakeNoLaterThan(Math.min(next, now + LONGEST_NAP));
  }

  private renew(leases: readonly Lease[]): void {
    const sentAt = currentInstant();
    const unanswered = new Set(leases);
    const limit = Math.min(...leases.map((lease) => this.timeoutOf(lease)));
    for (const lease of leases) this.reschedule(lease, Infinity);
    const timer = setTimeout(() => {
      this.failed([...unanswered], `no answer within ${Math.round(limit)} ms`);
      unanswered.clear();
    }, limit).unref();

    const requests = leases.map(({ grant: { names, ticket, options } }) => ({ names, ticket, ttl: options.ttl }));
    const failures: Lease[] = [];
    const answers = this.calls.renew(requests).map(async (pending, index) => {
      const lease = leases[index] as Lease;
      try {
        const answer = await pending;
        if (answer.status === 'renewed') lease.renewed(sentAt, answer.remaining);
        else lease.lose('taken');
        // An answer that comes after its time-out still counts; the next try is then already on its way.
        if (unanswered.delete(lease)) this.succeeded(lease, sentAt.monotonic);
      } catch (error) {
        if (unanswered.delete(lease)) failures.push(lease);
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

  private succeeded(lease: Lease, sentAt: number): void {
    const watch = this.watches.get(lease);
    if (watch) watch.failures = 0;
    this.reschedule(lease, sentAt + (lease.grant.options.renewal?.interval ?? Infinity));
  }

  /** Repeated at once, then with backoff, until the deadline; told once until it succeeds again. */
  private failed(leases: readonly Lease[], why: string): void {
    const news: string[] = [];
    for (const lease of leases) {
      const watch = this.watches.get(lease);
      if (!watch) continue;
      watch.failures += 1;
      if (watch.failures === 1) news.push(...lease.grant.names);
      const backoff = watch.failures === 1 ? 0 : FIRST_BACKOFF * 2 ** Math.min(watch.failures - 2, 10);
      this.reschedule(lease, performance.now() + Math.min(backoff, LONGEST_BACKOFF));
    }
    if (news.length === 0) return;
    const shown = news
      .slice(0, 3)
      .map((name) => `"${name}"`)
      .join(', ');
    const rest = news.length > 3 ? ` and ${news.length - 3} more` : '';
    this.logger.warn(`Renewal of ${shown}${rest} failed: ${why}; repeated until the lease ends`);
  }

  private reschedule(lease: Lease, dueAt: number): void {
    const watch = this.watches.get(lease);
    if (!watch) return;
    watch.dueAt = dueAt;
    this.wakeNoLaterThan(dueAt);
  }

  private timeoutOf({ grant: { options } }: Lease): number {
    return options.renewal?.timeout ?? Math.min(this.calls.commandTimeout, options.ttl / 4);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : 'unknown error';
}
