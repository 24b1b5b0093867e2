import { setTimeout as sleep } from 'node:timers/promises';
import type { Warnings } from '../../errors/limited-log.js';
import { quoted } from '../../keys/key-part.js';
import { BriefMap, LinkedList, PlaceOf } from '../../timing/brief-collections.js';
import { backoff, type Ticks } from '../../timing/clock.js';
import type { Grant } from './grant.js';
import { GONE, RELEASED, type ReleaseOutcome } from './lease.js';
import type { BackendCalls, LastRequest, Ticketed } from './store.js';
import type { Watchdog } from './watchdog.js';

/** Ended minimum holds are removed once there are more than this, and twice as many as after the last time. */
const FEWEST_TO_SWEEP = 64;
/**
 * How many releases are sent at once: few, to spare a server that recovers, but several, because one node may be dead.
 */
const AT_ONCE = 16;
/** The pause (ms) before what an unanswered request may have got late is released once more; each is longer. */
const FIRST_PAUSE = 1_000;
const PAUSE_GROWTH = 4;
/** For how long (ms) at most that goes on: an outage with long leases must not leave thousands of them for hours. */
const LATEST = 90_000;
/** The step (ms) of limits that depend on what is left of a lease: `Timeouts` shares a timer among equal ones. */
export const LIMIT_STEP = 50;

/** Releases grants at the backend, and repeats the release until the backend confirms it or the lease ends. */
export class Releaser {
  private readonly underWay = new Set<Promise<unknown>>();
  private readonly retries: ReleaseRetries<UnansweredRelease & Ticketed>;
  /** Tickets in their minimum hold, and when (monotonic, ms) that ends: a late message or answer must not free them. */
  private readonly minHolds = new Map<string, number>();
  /** The grants that a request under way ends, by their tickets. */
  private readonly endings = new BriefMap<string, Grant>();
  /** How many releases are under way that no caller waits for. */
  inFlight = 0;
  /** The last of them of each name. */
  private readonly background = new BriefMap<string, Promise<unknown>>();
  private sweepAt = FEWEST_TO_SWEEP;

  constructor(
    private readonly calls: BackendCalls,
    private readonly watchdog: Watchdog,
    logger: Warnings,
  ) {
    const { commandTimeout, source, ticks } = calls;
    const send = async (release: Ticketed, limit: number) => {
      const { status } = await calls.release(release, limit);
      return status === 'released';
    };
    const subjectOf = ({ names }: Ticketed) => quoted(names);
    this.retries = new ReleaseRetries<UnansweredRelease & Ticketed>(
      { commandTimeout, ticks, label: source.label, send, subjectOf, refuses: () => calls.refusal !== undefined },
      logger,
    );
  }

  /** Releases the grant. Waits only for the answer to the first request, and never beyond the deadline. */
  release(grant: Grant): Promise<ReleaseOutcome> {
    this.watchdog.unwatch(grant);
    if (grant.minHoldUntil && grant.inMinHold) this.rememberMinHold(grant);
    const { commandTimeout } = this.calls;
    const remaining = grant.remaining();
    return this.ending(grant, (resolve) => {
      this.calls.sendRelease(
        grant,
        remaining >= commandTimeout ? commandTimeout : releaseLimit(remaining, commandTimeout),
        // The first request may have freed the name, and another process may own it since.
        ({ status, resent }) => this.ended(grant, resolve, resent ? 'released' : status),
        () => {
          this.repeatUntilConfirmed(grant);
          this.ended(grant, resolve, 'unconfirmed');
        },
      );
    });
  }

  /**
   * Ends the grant by a request of its holder. `freed` is called with the answer, before anything else is read. Without
   * an answer in time, nothing has changed, and the grant is renewed as before.
   */
  releaseBy(grant: Grant, by: LastRequest, freed: () => void): Promise<ReleaseOutcome> {
    if (grant.inMinHold) this.rememberMinHold(grant);
    return this.ending(grant, (resolve) => {
      this.calls.sendRelease(
        grant,
        releaseLimit(grant.remaining(), this.calls.commandTimeout),
        ({ status, resent }) => {
          freed();
          this.ended(grant, resolve, resent ? 'released' : status);
        },
        () => this.ended(grant, resolve, 'unconfirmed'),
        by,
      );
    });
  }

  /**
   * Sends the request that ends a grant, whose answer goes to `ended` with `resolve`. Until then its ticket is not
   * released once more.
   */
  ending(grant: Grant, send: (resolve: Settle) => void): Promise<ReleaseOutcome> {
    this.endings.add(grant.ticket, grant);
    const outcome = new Promise(send);
    if (this.endings.get(grant.ticket)) grant.ending = outcome;
    return outcome;
  }

  ended(grant: Grant, resolve: Settle, outcome: ReleaseOutcome): void {
    this.endings.delete(grant.ticket);
    grant.ending = undefined;
    resolve(outcome);
  }

  /** Repeats the release of the ticket's names until the backend confirms it or the lease ends. */
  repeatUntilConfirmed(grant: Grant): void {
    const { names, ticket, minHoldUntil } = grant;
    const until = this.endOf(grant.longest);
    this.track(this.retries.repeat({ names, ticket, minHoldUntil, until, held: true }));
  }

  /**
   * Releases what the ticket may own: its grant was never used, or its lease was lost. Repeats the release until the
   * backend answers, for at most `ttl` ms. Waits for a request under way that ends its grant: where requests travel on
   * several connections, this one could overtake it, and that one would be answered that the lock was lost.
   */
  abandon(owned: Ticketed, ttl: number): void {
    const ending = this.endings.get(owned.ticket)?.ending;
    if (ending) this.track(ending.then(() => this.abandonNow(owned, ttl)));
    else this.abandonNow(owned, ttl);
  }

  /**
   * As `abandon`, for a request that failed: the server may carry it out after the release. A statement that waits for
   * a row, or bytes on their way, outlast the connection on which they were sent.
   */
  abandonUnanswered(asked: Ticketed, ttl: number): void {
    this.abandon(asked, ttl);
    this.abandonLate(asked, ttl);
  }

  /** The later releases of `abandonUnanswered`. */
  abandonLate({ names, ticket }: Ticketed, ttl: number): void {
    void this.retries.repeatLate({ names, ticket, until: performance.now() + ttl, held: false });
  }

  /**
   * Resolves when all tracked work is done and each release is answered, after `limit` ms at the latest; then stops all
   * repetitions.
   */
  async stop(limit: number): Promise<void> {
    const settled = (async () => {
      // A turn keeps its name until the end of this tick.
      await new Promise<void>((resolve) => process.nextTick(resolve));
      while (this.underWay.size > 0 || this.endings.size > 0) {
        await Promise.all([...this.underWay, ...Array.from(this.endings.values(), ({ ending }) => ending)]);
      }
    })();
    await new Promise<void>((resolve) => {
      // Not unref'd: a process without anything else to do would end here, before the rest of the shutdown has run.
      const timer = setTimeout(resolve, limit);
      void settled.finally(() => {
        clearTimeout(timer);
        resolve();
      });
    });
    this.retries.stop();
  }

  /** No caller waits for this release of the names: `releasing` tells the next one of this process of it. */
  inBackground(names: readonly string[], outcome: Promise<ReleaseOutcome>): void {
    if (outcome === RELEASED || outcome === GONE) return;
    this.inFlight += 1;
    for (const name of names) {
      this.background.delete(name);
      this.background.add(name, outcome);
    }
    void outcome.then(() => {
      this.inFlight -= 1;
      for (const name of names) if (this.background.get(name) === outcome) this.background.delete(name);
    });
  }

  /**
   * Settles when the releases in the background of these names are answered; `undefined` where there is none. A request
   * that is sent before may overtake them, on another connection or in another batch, and would find the names taken.
   */
  releasing(names: readonly string[]): Promise<unknown> | undefined {
    const underWay = names.flatMap((name) => this.background.get(name) ?? []);
    return underWay.length === 0 ? undefined : Promise.all(underWay);
  }

  /** Makes `stop` wait for work that no caller waits for. */
  track(work: Promise<unknown>): void {
    this.underWay.add(work);
    void work.finally(() => this.underWay.delete(work));
  }

  /** How many minimum holds it remembers. */
  get minHoldCount(): number {
    return this.minHolds.size;
  }

  private abandonNow({ names, ticket, minHoldUntil = this.minHolds.get(ticket) ?? 0 }: Ticketed, ttl: number): void {
    const until = this.endOf(ttl);
    const abandoned = { names, ticket, minHoldUntil };
    if (minHoldUntil > 0) this.rememberMinHold(abandoned);
    this.track(
      this.calls.release(abandoned).then(
        () => {},
        () => this.retries.repeat({ ...abandoned, until, held: false }),
      ),
    );
  }

  /** When (monotonic, ms) a lease of `ttl` ms at the backend ends without a release; with a session, never. */
  private endOf(ttl: number): number {
    return this.calls.backend.traits.lease === 'session' ? Infinity : performance.now() + ttl;
  }

  private rememberMinHold({ ticket, minHoldUntil = 0 }: Ticketed): void {
    this.minHolds.set(ticket, minHoldUntil);
    if (this.minHolds.size > this.sweepAt) this.forgetEndedMinHolds();
  }

  /** Looks through all of them only when their number has doubled, so that each ticket costs next to nothing. */
  private forgetEndedMinHolds(): void {
    const now = performance.now();
    for (const [ticket, until] of this.minHolds) if (until <= now) this.minHolds.delete(ticket);
    this.sweepAt = Math.max(FEWEST_TO_SWEEP, 2 * this.minHolds.size);
  }
}

type Settle = (outcome: ReleaseOutcome) => void;

/** A release that the backend did not answer: the ticket may still own what it was granted. */
export interface UnansweredRelease {
  readonly ticket: string;
  /** When (monotonic, ms) the lease at the backend has ended. */
  readonly until: number;
  /** Whether the lock was held: only then a warning is logged when the release is given up. */
  readonly held: boolean;
}

/** How releases are sent, and what a warning calls what one of them is of. */
interface ReleaseCalls<Release> {
  readonly commandTimeout: number;
  readonly ticks: Ticks;
  /** Who holds what is released: the label of this process. */
  readonly label: string;
  /** Answers whether that has freed anything. */
  send(release: Release, limit: number): Promise<boolean>;
  subjectOf(release: Release): string;
  /** Whether the backend refuses for good. */
  refuses?(): boolean;
}

/** Repeats releases that the backend did not answer, a few at a time, until each is answered or its lease has ended. */
export class ReleaseRetries<Release extends UnansweredRelease> {
  private readonly entries = new LinkedList<PlaceOf<Entry<Release>>>();
  private repeating = false;
  private stopped = false;

  constructor(
    private readonly calls: ReleaseCalls<Release>,
    private readonly logger: Warnings,
  ) {}

  /** Resolves when the backend has answered, or the lease has ended. Answers whether the backend freed anything. */
  repeat(release: Release): Promise<boolean> {
    return new Promise((settled) => {
      this.entries.push(new PlaceOf({ release, settled }));
      if (!this.repeating) void this.repeatAll();
    });
  }

  /** Releases after pauses, until the backend has freed something, the lease would be over or 90 s have passed. */
  async repeatLate(release: Release): Promise<void> {
    const until = Math.min(release.until, performance.now() + LATEST);
    for (let pause = FIRST_PAUSE; ; pause *= PAUSE_GROWTH) {
      const at = performance.now() + pause;
      if (this.stopped || at >= until) return;
      await new Promise<void>((resolve) => this.calls.ticks.start(at, resolve));
      if (await this.repeat({ ...release, until })) return;
    }
  }

  /** Gives up all releases. */
  stop(): void {
    this.stopped = true;
  }

  private async repeatAll(): Promise<void> {
    this.repeating = true;
    for (let failures = 0; ;) {
      this.dropEnded();
      if (!this.entries.first) break;
      if (await this.sendSome()) failures = 0;
      else {
        await sleep(backoff(failures), undefined, { ref: false });
        failures += 1;
      }
    }
    this.repeating = false;
  }

  /** Returns whether the backend answered any. The unanswered ones move to the end. */
  private async sendSome(): Promise<boolean> {
    const sent: Promise<boolean>[] = [];
    for (let place = this.entries.first; place && sent.length < AT_ONCE; place = this.entries.first) {
      place.leave();
      sent.push(this.send(place.value));
    }
    return (await Promise.all(sent)).includes(true);
  }

  private async send(entry: Entry<Release>): Promise<boolean> {
    const left = entry.release.until - performance.now();
    let freed = false;
    try {
      const limit = Math.max(1, Math.min(this.calls.commandTimeout, left));
      freed = await this.calls.send(entry.release, limit);
    } catch {
      // A backend that refuses for good has nothing that a repetition could free.
      if (!this.calls.refuses?.()) {
        this.entries.push(new PlaceOf(entry));
        return false;
      }
    }
    entry.settled(freed);
    return true;
  }

  private dropEnded(): void {
    const now = performance.now();
    const unconfirmed: Release[] = [];
    for (let place = this.entries.first; place;) {
      const { after, value } = place;
      const { release, settled } = value;
      if (this.stopped || release.until <= now) {
        place.leave();
        settled(false);
        if (release.held) unconfirmed.push(release);
      }
      place = after;
    }
    for (const release of unconfirmed) {
      const subject = this.calls.subjectOf(release);
      this.logger.warn(
        `Release of ${subject} (owner ${release.ticket}, ${this.calls.label}) was never confirmed; its lease ends it`,
        `release ${subject}`,
      );
    }
  }
}

/**
 * How long (ms) a holder with `remaining` ms of lease waits for the answer to its release: not beyond its deadline, in
 * steps, because `Timeouts` shares a timer among equal durations.
 */
export function releaseLimit(remaining: number, commandTimeout: number): number {
  if (remaining >= commandTimeout) return commandTimeout;
  return Math.max(1, Math.floor(remaining / LIMIT_STEP) * LIMIT_STEP);
}

interface Entry<Release> {
  readonly release: Release;
  readonly settled: (freed: boolean) => void;
}
