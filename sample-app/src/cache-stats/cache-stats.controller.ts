import { Controller, Get, Inject } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { CacheService, type CacheStats } from 'nest-redis-lock';

/** What the cache of this process has done since it began. */
@ApiTags('cache')
@Controller('cache/stats')
export class CacheStatsController {
  constructor(@Inject(CacheService) private readonly cache: CacheService) {}

  @Get()
  stats(): CacheStats {
    return this.cache.stats();
  }
}
