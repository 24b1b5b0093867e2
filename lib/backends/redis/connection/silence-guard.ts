import { onceRead } from '../../../timing/once-read.js';

/** How often (ms) it is looked: a silent connection ends within twice this time. */
const PERIOD = 2_500;

/**
 * Ends a connection on which nothing comes although something was asked, so that the client makes a new one: a server
 * that neither answers nor closes the connection would otherwise keep it for ever. `socketTimeout` of ioredis does the
 * same at the price of a timer and a listener for every command.
 */
export class SilenceGuard {
  private unanswered = 0;
  private answers = 0;
  private answersBefore = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly onSilence: (why: Error) => void) {}

  asked(): void {
    this.unanswered += 1;
    this.timer ??= setInterval(() => onceRead(() => this.look()), PERIOD).unref();
  }

  answered(): void {
    this.unanswered -= 1;
    this.answers += 1;
  }

  close(): void {
    clearInterval(this.timer);
  }

  private look(): void {
    if (this.unanswered === 0) {
      clearInterval(this.timer);
      this.timer = undefined;
    } else if (this.answers === this.answersBefore) {
      this.onSilence(new Error(`The Redis server sent nothing for ${PERIOD} ms`));
    }
    this.answersBefore = this.answers;
  }
}
