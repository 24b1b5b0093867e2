import { setTimeout } from 'node:timers/promises';
import type { Moment } from './html-report/report-data.js';
import type { Answer } from './answer.js';

const INTERVAL_MILLISECONDS = 20;
/** More moments than a chart has room for. */
const MOST_MOMENTS = 600;

/** Records a sale from the moment it starts: orders accepted so far, and the stock that the database shows. */
export class CourseRecorder {
  private readonly start = performance.now();
  private readonly stopping = new AbortController();
  private readonly watching: Promise<void>;
  private moments: Moment[];
  private accepted = 0;
  private lastAnswer = 0;

  constructor(
    stock: number,
    private readonly stockLeft: () => Promise<number>,
  ) {
    this.moments = [{ seconds: 0, accepted: 0, stockLeft: stock }];
    this.watching = this.watch();
    // stop() reports the error.
    this.watching.catch(() => {});
  }

  answered(answer: Answer): void {
    if (answer === 'accepted') this.accepted += 1;
    this.lastAnswer = this.seconds();
  }

  async stop(): Promise<readonly Moment[]> {
    this.stopping.abort();
    await this.watching;
    const last = { seconds: this.lastAnswer, accepted: this.accepted, stockLeft: await this.stockLeft() };
    return [...this.moments.filter(({ seconds }) => seconds < last.seconds), last];
  }

  private async watch(): Promise<void> {
    const { signal } = this.stopping;
    let interval = INTERVAL_MILLISECONDS;
    while (!signal.aborted) {
      const stockLeft = await this.stockLeft();
      this.moments.push({ seconds: this.seconds(), accepted: this.accepted, stockLeft });
      if (this.moments.length > MOST_MOMENTS) {
        this.moments = this.moments.filter((_, index) => index % 2 === 0);
        interval *= 2;
      }
      await setTimeout(interval, undefined, { signal }).catch(() => {});
    }
  }

  private seconds(): number {
    return (performance.now() - this.start) / 1_000;
  }
}
