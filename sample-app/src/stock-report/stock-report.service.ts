import { Inject, Injectable, Logger, type OnApplicationBootstrap, type OnApplicationShutdown } from '@nestjs/common';
import { SchedulerRegistry } from '@nestjs/schedule';
import { ScheduledJobs } from 'nest-redis-lock';
import { Database } from '../database/database.js';
import { PRIMITIVE_BACKEND, SETTINGS, type Settings } from '../settings.js';

const TIMER = 'stock-report';
/** The least time for a report whose process may have died, in milliseconds. */
const AT_MOST_FOR = 3_000;

/** Counts the stock once at each tick, although every process of the shop has a timer for it. */
@Injectable()
export class StockReportService implements OnApplicationBootstrap, OnApplicationShutdown {
  private readonly logger = new Logger(StockReportService.name);
  /** Milliseconds: clocks and timers of the processes may differ by less than this. */
  private readonly atLeastFor: number;

  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(ScheduledJobs) private readonly jobs: ScheduledJobs,
    @Inject(SchedulerRegistry) private readonly scheduler: SchedulerRegistry,
    @Inject(SETTINGS) private readonly settings: Settings,
  ) {
    this.atLeastFor = Math.round(settings.reportInterval * 0.8);
  }

  onApplicationBootstrap(): void {
    this.awaitTick();
  }

  onApplicationShutdown(): void {
    if (this.scheduler.doesExist('timeout', TIMER)) this.scheduler.deleteTimeout(TIMER);
  }

  /** `@ScheduledLock` with durations from the settings. Skipped where another process reports, or has just reported. */
  async report(period: number): Promise<void> {
    if (this.settings.without?.has('scheduled-job')) return this.count(period);
    const atMostFor = Math.max(this.settings.reportInterval, AT_MOST_FOR);
    const options = { atMostFor, atLeastFor: this.atLeastFor, backend: PRIMITIVE_BACKEND };
    await this.jobs.run('stock-report', options, () => this.count(period));
  }

  /**
   * By hand rather than by `@Interval`, because the interval comes from the settings. All processes tick at the same
   * time, as with `@Cron`. A timer that is so late that the next report may have begun leaves its tick to the others.
   */
  private awaitTick(): void {
    const { reportInterval } = this.settings;
    const period = Math.floor(Date.now() / reportInterval) + 1;
    const tick = () => {
      this.scheduler.deleteTimeout(TIMER);
      this.awaitTick();
      if (Date.now() - period * reportInterval > this.atLeastFor) return;
      this.report(period).catch((error: unknown) => this.logger.error(error));
    };
    this.scheduler.addTimeout(TIMER, setTimeout(tick, period * reportInterval - Date.now()));
  }

  private async count(period: number): Promise<void> {
    await this.database.query(
      `INSERT INTO stock_reports (period, products, pieces, process)
       SELECT $1, count(*), coalesce(sum(stock), 0), $2 FROM products`,
      [period, process.pid],
    );
  }
}
