import { Inject, Injectable, Logger, type OnApplicationBootstrap, type OnApplicationShutdown } from '@nestjs/common';
import { SchedulerRegistry } from '@nestjs/schedule';
import { DistributedLock } from 'nest-redis-lock';
import { Database } from '../database/database.js';
import { SETTINGS, type Settings } from '../settings.js';

const TIMER = 'stock-report';

/**
 * Counts the stock once in each period, however many processes of the shop have a timer for it: the lock sends the
 * others away while one is at it, and the row of the period those that come when it is done.
 */
@Injectable()
export class StockReportService implements OnApplicationBootstrap, OnApplicationShutdown {
  private readonly logger = new Logger(StockReportService.name);

  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(SchedulerRegistry) private readonly scheduler: SchedulerRegistry,
    @Inject(SETTINGS) private readonly settings: Settings,
  ) {}

  /** By hand and not by `@Interval`, because the interval comes from the settings. */
  onApplicationBootstrap(): void {
    const timer = setInterval(() => {
      this.report(Math.floor(Date.now() / this.settings.reportInterval)).catch((error: unknown) =>
        this.logger.error(error),
      );
    }, this.settings.reportInterval);
    this.scheduler.addInterval(TIMER, timer);
  }

  onApplicationShutdown(): void {
    if (this.scheduler.doesExist('interval', TIMER)) this.scheduler.deleteInterval(TIMER);
  }

  @DistributedLock('stock-report', { wait: 0, onBusy: 'skip' })
  async report(period: number): Promise<void> {
    const done = await this.database.query('SELECT FROM stock_reports WHERE period = $1', [period]);
    if (done.rowCount) return;
    await this.database.query(
      `INSERT INTO stock_reports (period, products, pieces, process)
       SELECT $1, count(*), coalesce(sum(stock), 0), $2 FROM products`,
      [period, process.pid],
    );
  }
}
