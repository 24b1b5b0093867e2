import {
  ConfigurableModuleBuilder,
  Inject,
  Module,
  type DynamicModule,
  type OnApplicationShutdown,
} from '@nestjs/common';
import type { Metric } from 'prom-client';
import { CacheMetrics } from './cache-metrics.js';
import { LockMetrics } from './lock-metrics.js';
import {
  idempotencyMetrics,
  latchMetrics,
  leaderMetrics,
  rateLimitMetrics,
  scheduleMetrics,
} from './primitive-metrics.js';
import { semaphoreMetrics } from './semaphore-metrics.js';
import { resolveMetricsOptions, type MetricsOptions } from './metrics-options.js';

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } =
  new ConfigurableModuleBuilder<MetricsOptions>({ moduleName: 'RedisLockMetrics' })
    .setClassMethodName('forRoot')
    .build();

/**
 * Counts what happens to the locks, the primitives and in the caches of this process, and adds the metrics to a
 * registry of prom-client: `RedisLockMetricsModule.forRoot({ registry })`, or `forRootAsync`. It counts from its
 * creation until the application has ended.
 */
@Module({})
export class RedisLockMetricsModule extends ConfigurableModuleClass implements OnApplicationShutdown {
  private readonly stop: () => void;

  /** @internal */
  constructor(@Inject(MODULE_OPTIONS_TOKEN) options: MetricsOptions) {
    super();
    const { registry, prefix, maxTemplates, buckets } = resolveMetricsOptions(options);
    const sets = [
      new LockMetrics(prefix, maxTemplates, buckets),
      new CacheMetrics(prefix, maxTemplates, buckets),
      semaphoreMetrics(prefix, maxTemplates, buckets),
      latchMetrics(prefix, maxTemplates, buckets),
      scheduleMetrics(prefix, maxTemplates, buckets),
      idempotencyMetrics(prefix, maxTemplates, buckets),
      rateLimitMetrics(prefix, maxTemplates),
      leaderMetrics(prefix, maxTemplates),
    ];
    const metrics = sets.flatMap(({ all }) => all);
    // The registry renames counters while it shows them as OpenMetrics.
    const names = metrics.map(({ name }) => name);
    for (const metric of metrics) registry.registerMetric(metric as unknown as Metric);
    const stops = sets.map((each) => each.listen());
    this.stop = () => {
      for (const each of stops) each();
      for (const name of names) registry.removeSingleMetric(name);
    };
  }

  /** @throws LockConfigError for an option that it cannot take */
  static override forRoot(options: typeof OPTIONS_TYPE): DynamicModule {
    return super.forRoot(options);
  }

  /** Takes options from a factory, a class or a provider. */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    return super.forRootAsync(options);
  }

  /** @internal */
  onApplicationShutdown(): void {
    this.stop();
  }
}
