import { setTimeout as sleep } from 'node:timers/promises';
import type { LoggerService } from '@nestjs/common';
import type { BackendCalls, Ticketed } from '../backend/backend-calls.js';
import { backoff } from '../../timing/backoff.js';
import { LinkedList } from '../../timing/linked-list.js';

/** A release that the backend did not answer: the ticket may still own its names. */
export interface UnansweredRelease extends Ticketed {
  /** When (monotonic, ms) the lease at the backend has ended. */
  readonly until: number;
  /** Whether the lock was held: only then does giving up log a line. */
  readonly held: boolean;
}

interface Entry extends UnansweredRelease {
  readonly settled: () => void;
}

/** Releases sent at once: few, so as not to flood a server that recovers; several, as one node may be dead. */
const AT_ONCE = 16;

/** Repeats releases that the backend did not answer, a few at a time, until each is answered or its lease has ended. */
export class ReleaseRetries {
  private readonly entries = new LinkedList<Entry>();
  private repeating = false;
  private stopped = false;

  constructor(
    private readonly calls: BackendCalls,
    private readonly logger: Pick<LoggerService, 'warn'>,
  ) {}

  /** Resolves when the backend has answered, or the lease has ended. */
  repeat(release: UnansweredRelease): Promise<void> {
    return new Promise((settled) => {
      this.entries.push({ ...release, settled });
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

  /** Answers whether the backend answered any. The unanswered ones move behind the others. */
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

  private dropEnded(): void {
    const now = performance.now();
    const unconfirmed: Entry[] = [];
    for (let place = this.entries.firstPlace; place;) {
      const { after, value } = place;
      if (this.stopped || value.until <= now) {
        place.leave();
        value.settled();
        if (value.held) unconfirmed.push(value);
      }
      place = after;
    }
    for (const { names, ticket } of unconfirmed) {
      const shown = names.map((name) => `"${name}"`).join(', ');
      this.logger.warn(`Release of ${shown} (owner ${ticket}) was never confirmed; its lease ends it`);
    }
  }
}
