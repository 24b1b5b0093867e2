import {
  ConfigurableModuleBuilder,
  Inject,
  Module,
  type DynamicModule,
  type OnApplicationShutdown,
} from '@nestjs/common';
import type { Metric, Registry } from 'prom-client';
import { instance, wholeNumber } from '../../options/checks.js';
import { lockOption, requireSource } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import { CacheMetrics } from './cache-metrics.js';
import { lockMetrics } from './lock-metrics.js';
import {
  idempotencyMetrics,
  latchMetrics,
  leaderMetrics,
  rateLimitMetrics,
  scheduleMetrics,
} from './primitive-metrics.js';
import { semaphoreMetrics } from './semaphore-metrics.js';

/** The options of `RedisLockMetricsModule.forRoot`. Unknown options are refused. */
export interface MetricsOptions {
  /** The registry of prom-client that your `/metrics` shows. */
  registry: Registry;
  /** What the names of the metrics begin with. @default 'nest_redis_' */
  prefix?: string;
  /**
   * How many templates have series of their own, for each backend and for the cache; the others are counted together as
   * `other`. What no decorator did is counted as `none`.
   * @default 100
   */
  maxTemplates?: number;
  /** The upper bounds of the histograms, in seconds and rising. @default 1 ms to 30 s, in 13 steps */
  buckets?: readonly number[];
}

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
      lockMetrics(prefix, maxTemplates, buckets),
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

  /** Takes options from a factory, a class or a provider. @throws LockConfigError unless it is exactly one of them */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    requireSource(options);
    return super.forRootAsync(options);
  }

  /** @internal */
  onApplicationShutdown(): void {
    this.stop();
  }
}

/** `MetricsOptions` checked and complete. */
interface MetricsSettings {
  readonly registry: Pick<Registry, 'registerMetric' | 'removeSingleMetric'> | undefined;
  readonly prefix: string;
  readonly maxTemplates: number;
  readonly buckets: readonly number[];
}

const setting = settingOf<MetricsSettings>();

const METRICS_OPTIONS = new OptionTable<MetricsOptions, MetricsSettings>(
  lockOption,
  'option of metrics',
  '',
  {
    registry: undefined,
    prefix: 'nest_redis_',
    maxTemplates: 100,
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30],
  },
  {
    registry: setting('registry', instance(isRegistry, 'a Registry of prom-client')),
    prefix: setting('prefix', instance(isPrefix, 'letters, digits and underscores, the first of them no digit')),
    maxTemplates: setting('maxTemplates', wholeNumber),
    buckets: setting('buckets', instance(areBounds, 'rising numbers of seconds above 0')),
  },
);

/** @throws LockConfigError with the option, the value and the remedy */
function resolveMetricsOptions(
  options: MetricsOptions,
): MetricsSettings & { readonly registry: NonNullable<MetricsSettings['registry']> } {
  lockOption.object('options', options, 'an object of options with a registry');
  const { registry, ...settings } = METRICS_OPTIONS.settings(options);
  if (!registry) throw lockOption.refused('registry', registry, 'a Registry of prom-client');
  return { ...settings, registry };
}

function isRegistry(value: unknown): value is Registry {
  return typeof (value as Partial<Registry> | null)?.registerMetric === 'function';
}

function isPrefix(value: unknown): value is string {
  return typeof value === 'string' && /^([A-Za-z_]\w*)?$/.test(value);
}

function areBounds(value: unknown): value is readonly number[] {
  if (!Array.isArray(value) || value.length === 0) return false;
  return value.every((bound, index) => Number.isFinite(bound) && bound > (index === 0 ? 0 : value[index - 1]));
}
