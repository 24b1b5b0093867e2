import { Controller, Get, Inject } from '@nestjs/common';
import { HealthCheck, HealthCheckService, HealthIndicatorService, type HealthIndicatorResult } from '@nestjs/terminus';
import { LockService } from 'nest-redis-lock';
import { Database } from '../database/database.js';

@Controller('health')
export class HealthController {
  constructor(
    @Inject(HealthCheckService) private readonly health: HealthCheckService,
    @Inject(HealthIndicatorService) private readonly indicators: HealthIndicatorService,
    @Inject(Database) private readonly database: Database,
    @Inject(LockService) private readonly locks: LockService,
  ) {}

  @Get()
  @HealthCheck()
  check() {
    return this.health.check([
      () => this.indicate('database', () => this.database.query('SELECT 1')),
      () => this.indicate('locks', () => this.locks.isLocked('health')),
    ]);
  }

  private async indicate(name: string, probe: () => Promise<unknown>): Promise<HealthIndicatorResult> {
    const indicator = this.indicators.check(name);
    try {
      await probe();
      return indicator.up();
    } catch {
      return indicator.down();
    }
  }
}
