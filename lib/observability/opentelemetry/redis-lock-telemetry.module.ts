import {
  ConfigurableModuleBuilder,
  Inject,
  Module,
  type DynamicModule,
  type OnApplicationShutdown,
} from '@nestjs/common';
import { metrics, trace } from '@opentelemetry/api';
import { listenToCacheMetrics } from './cache-instruments.js';
import { listenToCacheSpans } from './cache-spans.js';
import { listenToLockMetrics } from './lock-instruments.js';
import { listenToLockSpans } from './lock-spans.js';
import { listenToPrimitiveMetrics } from './primitive-instruments.js';
import { resolveTelemetryOptions, type TelemetryOptions } from './telemetry-options.js';

/** The name of the instrumentation scope. */
const SCOPE = 'nest-redis-lock';

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } =
  new ConfigurableModuleBuilder<TelemetryOptions>({ moduleName: 'RedisLockTelemetry' })
    .setClassMethodName('forRoot')
    .build();

/**
 * Makes spans and metrics of OpenTelemetry from what happens to the locks and in the caches of this process, and
 * metrics of its primitives, from its creation until the application has ended: `RedisLockTelemetryModule.forRoot()`,
 * or `forRootAsync`.
 */
@Module({})
export class RedisLockTelemetryModule extends ConfigurableModuleClass implements OnApplicationShutdown {
  private readonly stops: readonly (() => void)[];

  /** @internal */
  constructor(@Inject(MODULE_OPTIONS_TOKEN) options: TelemetryOptions) {
    super();
    const { tracerProvider = trace, meterProvider = metrics } = resolveTelemetryOptions(options);
    const tracer = tracerProvider && tracerProvider.getTracer(SCOPE);
    const meter = meterProvider && meterProvider.getMeter(SCOPE);
    this.stops = [
      ...(tracer ? [listenToLockSpans(tracer), listenToCacheSpans(tracer)] : []),
      ...(meter ? [listenToLockMetrics(meter), listenToCacheMetrics(meter), ...listenToPrimitiveMetrics(meter)] : []),
    ];
  }

  /** @throws LockConfigError for an option that it cannot take */
  static override forRoot(options: typeof OPTIONS_TYPE = {}): DynamicModule {
    return super.forRoot(options);
  }

  /** Takes options from a factory, a class or a provider. */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    return super.forRootAsync(options);
  }

  /** @internal */
  onApplicationShutdown(): void {
    for (const stop of this.stops) stop();
  }
}
