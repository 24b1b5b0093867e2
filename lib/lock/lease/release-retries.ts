import { setTimeout as sleep } from 'node:timers/promises';
import type { Warnings } from '../../errors/limited-log.js';
import { backoff } from '../../timing/backoff.js';
import { LinkedList } from '../../timing/linked-list.js';

/** A release that the backend did not answer: the ticket may still own what it was granted. */
export interface UnansweredRelease {
  readonly ticket: string;
  /** When (monotonic, ms) the lease at the backend has ended. */
  readonly until: number;
  /** Whether the lock was held: only then a warning is logged when the release is given up. */
  readonly held: boolean;
}

/** How releases are sent, and what a warning calls what one of them is of. */
export interface ReleaseCalls<Release> {
  readonly commandTimeout: number;
  /** Who holds what is released: the label of this process. */
  readonly label: string;
  send(release: Release, limit: number): Promise<unknown>;
  subjectOf(release: Release): string;
}

interface Entry<Release> {
  readonly release: Release;
  readonly settled: () => void;
}

/**
 * How many releases are sent at once: few, to spare a server that recovers, but several, because one node may be dead.
 */
const AT_ONCE = 16;
const LIMIT_STEP = 50;

/**
 * How long (ms) a holder with `remaining` ms of lease waits for the answer to its release: not beyond its deadline, in
 * steps, because `Timeouts` shares a timer among equal durations.
 */
export function releaseLimit(remaining: number, commandTimeout: number): number {
  if (remaining >= commandTimeout) return commandTimeout;
  return Math.max(1, Math.floor(remaining / LIMIT_STEP) * LIMIT_STEP);
}

/** Repeats releases that the backend did not answer, a few at a time, until each is answered or its lease has ended. */
export class ReleaseRetries<Release extends UnansweredRelease> {
  private readonly entries = new LinkedList<Entry<Release>>();
  private repeating = false;
  private stopped = false;

  constructor(
    private readonly calls: ReleaseCalls<Release>,
    private readonly logger: Warnings,
  ) {}

  /** Resolves when the backend has answered, or the lease has ended. */
  repeat(release: Release): Promise<void> {
    return new Promise((settled) => {
      this.entries.push({ release, settled });
      if (!this.repeating) void this.repeatAll();
    });
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
    for (let place = this.entries.firstPlace; place && sent.length < AT_ONCE; place = this.entries.firstPlace) {
      place.leave();
      sent.push(this.send(place.value));
    }
    return (await Promise.all(sent)).includes(true);
  }

  private async send(entry: Entry<Release>): Promise<boolean> {
    const left = entry.release.until - performance.now();
    try {
      await this.calls.send(entry.release, Math.max(1, Math.min(this.calls.commandTimeout, left)));
    } catch {
      this.entries.push(entry);
      return false;
    }
    entry.settled();
    return true;
  }

  private dropEnded(): void {
    const now = performance.now();
    const unconfirmed: Release[] = [];
    for (let place = this.entries.firstPlace; place;) {
      const { after, value } = place;
      const { release, settled } = value;
      if (this.stopped || release.until <= now) {
        place.leave();
        settled();
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
