import { setTimeout as sleep } from 'node:timers/promises';
import type { LoggerService } from '@nestjs/common';
import type { BackendCalls, Ticketed } from '../backend/backend-calls.js';
import { backoff } from '../../timing/backoff.js';
import { LinkedList } from '../../timing/linked-list.js';

/** A ticket that may own its names at the backend, although nobody here holds them. */
export interface Unconfirmed extends Ticketed {
  /** When (monotonic, ms) its lease is over in any case. */
  readonly until: number;
  /** Whether it was held: otherwise nobody misses it, and its end is not worth a line in the log. */
  readonly held: boolean;
}

interface Entry extends Unconfirmed {
  readonly settled: () => void;
}

/**
 * Sent at once: few, so that an outage is not answered with a flood, and several, lest one dead node of a Cluster stop
 * all.
 */
const AT_ONCE = 16;

/**
 * Releases that the backend did not answer: sent again, a few at a time, until each is answered or its lease is over.
 */
export class UnconfirmedReleases {
  private readonly entries = new LinkedList<Entry>();
  private repeating = false;
  private stopped = false;

  constructor(
    private readonly calls: BackendCalls,
    private readonly logger: Pick<LoggerService, 'warn'>,
  ) {}

  /** Resolves when it was answered, or its lease is over. */
  repeat(release: Unconfirmed): Promise<void> {
    return new Promise((settled) => {
      this.entries.push({ ...release, settled });
      if (!this.repeating) void this.repeatAll();
    });
  }

  /** Repeats nothing from here on. */
  stop(): void {
    this.stopped = true;
  }

  private async repeatAll(): Promise<void> {
    this.repeating = true;
    for (let failures = 0; ;) {
      this.dropOver();
      if (!this.entries.first) break;
      if (await this.sendSome()) failures = 0;
      else {
        await sleep(backoff(failures), undefined, { ref: false });
        failures += 1;
      }
    }
    this.repeating = false;
  }

  /** Answers whether any of them was answered. Those that were not stand behind the others. */
  private async sendSome(): Promise<boolean> {
    const sent: Promise<boolean>[] = [];
    for (let place = this.entries.firstPlace; place && sent.length < AT_ONCE; place = this.entries.firstPlace) {
      place.leave();
      sent.push(this.send(place.value));
    }
    return (await Promise.all(sent)).includes(true);
  }

  private async send(entry: Entry): Promise<boolean> {
    const left = entry.until - performance.now();
    try {
      await this.calls.release(entry, Math.max(1, Math.min(this.calls.commandTimeout, left)));
    } catch {
      this.entries.push(entry);
      return false;
    }
    entry.settled();
    return true;
  }

  private dropOver(): void {
    const now = performance.now();
    const missed: Entry[] = [];
    for (let place = this.entries.firstPlace; place;) {
      const { after, value } = place;
      if (this.stopped || value.until <= now) {
        place.leave();
        value.settled();
        if (value.held) missed.push(value);
      }
      place = after;
    }
    for (const { names, ticket } of missed) {
      const shown = names.map((name) => `"${name}"`).join(', ');
      this.logger.warn(`Release of ${shown} (owner ${ticket}) was never confirmed; its lease ends it`);
    }
  }
}
