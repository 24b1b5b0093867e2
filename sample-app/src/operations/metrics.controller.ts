import { Controller, Get, Header, Inject } from '@nestjs/common';
import { ApiOperation, ApiTags } from '@nestjs/swagger';
import { CacheService, type CacheStats } from 'nest-redis-lock';
import { Registry } from 'prom-client';

@Controller('metrics')
export class MetricsController {
  constructor(@Inject(Registry) private readonly registry: Registry) {}

  @Get()
  @Header('content-type', Registry.PROMETHEUS_CONTENT_TYPE)
  @ApiOperation({ summary: 'The metrics of this process, for Prometheus' })
  metrics(): Promise<string> {
    return this.registry.metrics();
  }
}

@ApiTags('cache')
@Controller('cache/stats')
export class CacheStatsController {
  constructor(@Inject(CacheService) private readonly cache: CacheService) {}

  @Get()
  @ApiOperation({ summary: 'What the cache of this process has done since it began' })
  stats(): CacheStats {
    return this.cache.stats();
  }
}
