/** Milliseconds without an answer until a message is shown, and until the sale is given up. */
const TELL = 3_000;
const GIVE_UP = 20_000;
const LOOK = 250;

/** Watches a sale; aborts `signal` if it stands still or takes too long. */
export class Standstill {
  /** Milliseconds: the longest time in which nothing was accepted. */
  longest = 0;
  /** Milliseconds from the start to the last order that was accepted. */
  lastAccepted = 0;
  private readonly ending = new AbortController();
  private readonly start = performance.now();
  private readonly timer: NodeJS.Timeout;
  private lastAnswer = 0;
  private told = false;

  constructor(
    private readonly timeLimit: number,
    private readonly onSilence: (message: string) => void,
    private readonly interruption?: AbortSignal,
  ) {
    this.timer = setInterval(() => this.look(), LOOK);
  }

  get signal(): AbortSignal {
    return this.ending.signal;
  }

  answered(accepted: boolean): void {
    this.lastAnswer = this.now();
    this.told = false;
    if (!accepted) return;
    this.longest = Math.max(this.longest, this.lastAnswer - this.lastAccepted);
    this.lastAccepted = this.lastAnswer;
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private look(): void {
    const silence = this.now() - this.lastAnswer;
    if (this.interruption?.aborted) this.ending.abort();
    else if (silence > GIVE_UP) this.end(`no order was answered for ${GIVE_UP / 1_000} s`);
    else if (this.now() > this.timeLimit * 1_000) this.end(`it took longer than ${this.timeLimit} s (--time-limit)`);
    else if (silence > TELL && !this.told) {
      this.told = true;
      this.onSilence(`no order was answered for ${TELL / 1_000} s; the sale ends if it lasts for ${GIVE_UP / 1_000} s`);
    }
  }

  private end(reason: string): void {
    if (this.ending.signal.aborted) return;
    this.onSilence(`the sale ends here: ${reason}`);
    this.ending.abort();
  }

  private now(): number {
    return performance.now() - this.start;
  }
}
