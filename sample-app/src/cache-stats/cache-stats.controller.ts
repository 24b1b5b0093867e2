import { Controller, Get, Inject } from '@nestjs/common';
import { ApiOperation, ApiTags } from '@nestjs/swagger';
import { CacheService, type CacheStats } from 'nest-redis-lock';

/** What the cache of this process has done since it began. */
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
