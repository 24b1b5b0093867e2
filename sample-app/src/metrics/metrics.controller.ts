import { Controller, Get, Header, Inject } from '@nestjs/common';
import { ApiOperation } from '@nestjs/swagger';
import { Registry } from 'prom-client';

/** What the locks, the cache and the primitives of this process have done since it began, for Prometheus. */
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
