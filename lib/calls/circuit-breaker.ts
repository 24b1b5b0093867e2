import type { Pending } from '../contracts/pending.js';

/** How soon (ms) a PING that failed is followed by another. */
const PROBE_INTERVAL = 250;

/**
 * Keeps calls from a store that does not answer: for `open` ms, or until it answers a PING.
 *
 * The pattern is Nygard's ("Release It!", 2007).
 */
export class CircuitBreaker {
  private failures = 0;
  private openUntil = 0;
  private timer: NodeJS.Timeout | undefined;
  private probing = false;
  private stopped = false;
  /** How often it opened. */
  opened = 0;

  constructor(
    private readonly options: { readonly errors: number; readonly open: number },
    private readonly probe: () => Pending<unknown>,
    private readonly onOpen: () => void,
    private readonly onClose: () => void,
  ) {}

  get isOpen(): boolean {
    return this.openUntil !== 0;
  }

  answered(): void {
    this.failures = 0;
    if (this.isOpen) this.close();
  }

  failed(): void {
    this.failures += 1;
    if (this.failures >= this.options.errors) this.trip();
  }

  /** Opens at once. */
  trip(): void {
    if (this.isOpen || this.stopped) return;
    this.opened += 1;
    this.openUntil = performance.now() + this.options.open;
    this.look();
    this.onOpen();
  }

  /** It opens no more. */
  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    this.openUntil = 0;
  }

  private look(): void {
    if (!this.isOpen) return;
    const left = this.openUntil - performance.now();
    if (left <= 0) {
      // The next failure opens it again.
      this.failures = this.options.errors - 1;
      return this.close();
    }
    this.timer = setTimeout(() => this.look(), Math.min(left, PROBE_INTERVAL)).unref();
    if (this.probing) return;
    this.probing = true;
    this.probe().then(
      () => {
        this.probing = false;
        this.answered();
      },
      () => {
        this.probing = false;
      },
    );
  }

  private close(): void {
    clearTimeout(this.timer);
    this.openUntil = 0;
    this.onClose();
  }
}
