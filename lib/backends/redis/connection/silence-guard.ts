import { onceRead } from '../../../timing/once-read.js';

/** How often (ms) the guard checks. It closes a silent connection within twice this time. */
const PERIOD = 2_500;

/** How many commands a connection has sent, and how many replies to them have arrived. */
export interface Traffic {
  readonly sent: number;
  readonly replies: number;
}

/**
 * Closes a connection that receives nothing although a command waits for its reply, so that the client makes a new one.
 * ioredis would keep a connection to a server that neither answers nor closes it for ever. Its `socketTimeout` does the
 * same, at the cost of a timer and a listener for every command.
 */
export class SilenceGuard {
  private readonly timer = setInterval(() => onceRead(() => this.check()), PERIOD).unref();
  private waited = false;
  private repliesBefore = 0;

  constructor(
    private readonly traffic: Traffic,
    private readonly onSilence: (why: Error) => void,
  ) {}

  close(): void {
    clearInterval(this.timer);
  }

  private check(): void {
    const { sent, replies } = this.traffic;
    if (this.waited && replies === this.repliesBefore) {
      this.onSilence(new Error(`The Redis server sent nothing for ${PERIOD} ms`));
    }
    this.waited = sent > replies;
    this.repliesBefore = replies;
  }
}
