/** How often (ms) it looks. */
const PERIOD = 50;

/** Waits for a state of which node-redis emits no event. */
export class Poll {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly reached: () => boolean,
    private readonly whenReached: () => void,
  ) {}

  start(): void {
    this.timer ??= setInterval(() => {
      if (!this.reached()) return;
      this.stop();
      this.whenReached();
    }, PERIOD).unref();
  }

  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }
}
