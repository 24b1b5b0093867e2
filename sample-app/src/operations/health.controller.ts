import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Get, Inject } from '@nestjs/common';
import { ApiOperation } from '@nestjs/swagger';
import { HealthCheck, HealthCheckService, HealthIndicatorService, type HealthIndicatorResult } from '@nestjs/terminus';
import { LockService } from 'nest-redis-lock';
import { Database } from '../database/database.js';

/** Milliseconds for one probe. A health check waits for seconds, not for the time limit of an order. */
const TIME_LIMIT = 2_000;

@Controller('health')
export class HealthController {
  constructor(
    @Inject(HealthCheckService) private readonly health: HealthCheckService,
    @Inject(HealthIndicatorService) private readonly indicators: HealthIndicatorService,
    @Inject(Database) private readonly database: Database,
    @Inject(LockService) private readonly locks: LockService,
  ) {}

  @Get()
  @ApiOperation({ summary: 'Whether the database and the locks answer' })
  @HealthCheck()
  check() {
    return this.health.check([
      () => this.indicate('database', () => this.database.query('SELECT 1')),
      () => this.indicate('locks', () => this.locks.isLocked('health')),
    ]);
  }

  private async indicate(name: string, probe: () => Promise<unknown>): Promise<HealthIndicatorResult> {
    const indicator = this.indicators.check(name);
    const giveUp = new AbortController();
    const limit = sleep(TIME_LIMIT, undefined, { signal: giveUp.signal }).then(() => {
      throw new Error(`no answer within ${TIME_LIMIT} ms`);
    });
    try {
      await Promise.race([probe(), limit]);
      return indicator.up();
    } catch {
      return indicator.down();
    } finally {
      giveUp.abort();
      limit.catch(() => {});
    }
  }
}
