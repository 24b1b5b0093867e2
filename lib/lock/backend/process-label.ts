import { hostname } from 'node:os';
import type { BackendCalls } from './backend-calls.js';

/** How long (ms) the label outlives its process: longer than most leases. */
const EXPIRY = 60 * 60 * 1_000;
/** How often (ms) it is written again, also where the store lost it. */
const PERIOD = 60 * 1_000;

export function defaultLabel(): string {
  return `${hostname()}:${process.pid}`;
}

/**
 * Tells the backend who this process is, so that `inspect` can say it of a holder anywhere: once with the first ticket,
 * then once a minute. Whether that succeeds is of no consequence for a lock.
 */
export class ProcessLabel {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly calls: BackendCalls,
    private readonly process: string,
    readonly text: string,
  ) {}

  announce(): void {
    if (!this.calls.backend.label) return;
    void this.write(EXPIRY);
    this.timer = setInterval(() => void this.write(EXPIRY), PERIOD).unref();
  }

  /** No lock is held any more. */
  async withdraw(): Promise<void> {
    if (!this.timer) return;
    clearInterval(this.timer);
    this.timer = undefined;
    await this.write(0);
  }

  private async write(ttl: number): Promise<void> {
    try {
      await this.calls.label(this.process, this.text, ttl);
    } catch {
      // It is written again a minute later.
    }
  }
}
