import type { Pending } from '../contracts/store.js';
import { LinkedList } from '../timing/brief-collections.js';

/** Milliseconds between two PINGs while the breaker is open. */
const PROBE_INTERVAL = 250;

/** A call under way, which can be made to fail before its time is over. */
export interface Interruptible {
  interrupt(why: string): void;
}

/**
 * Stops sending commands for `open` ms after repeated failures; probes with PING and resumes on the first reply.
 *
 * It opens after `errors` failures in a row, or after one call during which the store answered nothing at all. When
 * `open` ms have passed without a reply to a PING, it closes, and one more failure opens it again.
 *
 * The pattern is Nygard's ("Release It!", 2007).
 */
export class CircuitBreaker {
  /** The calls that can still fail; each leaves its place when it ends. */
  readonly underWay = new LinkedList<Interruptible>();
  private failures = 0;
  isOpen = false;
  private openUntil = 0;
  private timer: NodeJS.Timeout | undefined;
  private probing = false;
  private stopped = false;
  /** How often it has opened. */
  opened = 0;
  /** How many answers have arrived. */
  answers = 0;

  constructor(
    private readonly options: { readonly errors: number; readonly open: number },
    private readonly probe: () => Pending<unknown>,
    private readonly onOpen: () => void,
    private readonly onClose: () => void,
  ) {}

  answered(): void {
    this.answers += 1;
    this.failures = 0;
    if (this.isOpen) this.close();
  }

  failed(): void {
    this.failures += 1;
    if (this.failures >= this.options.errors) this.trip();
  }

  /** A call got no answer in its time; `answersBefore` is what `answers` was when it began. */
  unanswered(answersBefore: number): void {
    if (this.answers === answersBefore) this.trip();
    else this.failed();
  }

  /** Fails every call that is under way. */
  interruptAll(why: string): void {
    for (const call of this.underWay.toArray()) call.interrupt(why);
  }

  /** Closes it for good: from now on every call is sent, however many have failed. */
  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    this.isOpen = false;
  }

  private trip(): void {
    if (this.isOpen || this.stopped) return;
    this.opened += 1;
    this.isOpen = true;
    this.openUntil = performance.now() + this.options.open;
    this.probeUntilAnswered();
    this.onOpen();
  }

  private probeUntilAnswered(): void {
    if (!this.isOpen) return;
    const left = this.openUntil - performance.now();
    if (left <= 0) {
      this.failures = this.options.errors - 1;
      return this.close();
    }
    this.timer = setTimeout(() => this.probeUntilAnswered(), Math.min(left, PROBE_INTERVAL)).unref();
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
    this.isOpen = false;
    this.onClose();
  }
}
