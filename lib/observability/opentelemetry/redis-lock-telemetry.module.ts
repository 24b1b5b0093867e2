import {
  ConfigurableModuleBuilder,
  Inject,
  Module,
  type DynamicModule,
  type OnApplicationShutdown,
} from '@nestjs/common';
import { metrics, trace, type MeterProvider, type TracerProvider } from '@opentelemetry/api';
import { instance, orFalse } from '../../options/checks.js';
import { lockOption, requireSource } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import { listenToCacheMetrics, listenToLockMetrics, listenToPrimitiveMetrics } from './instruments.js';
import { listenToCacheSpans, listenToLockSpans } from './spans.js';

/** The options of `RedisLockTelemetryModule.forRoot`. Unknown options are refused. */
export interface TelemetryOptions {
  /** Makes the spans; `false`: no spans. @default the global one */
  tracerProvider?: TracerProvider | false;
  /** Makes the metrics; `false`: no metrics. @default the global one, as registered before the application starts */
  meterProvider?: MeterProvider | false;
}

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

  /** Takes options from a factory, a class or a provider. @throws LockConfigError unless it is exactly one of them */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    requireSource(options);
    return super.forRootAsync(options);
  }

  /** @internal */
  onApplicationShutdown(): void {
    for (const stop of this.stops) stop();
  }
}

/** `TelemetryOptions` checked; `undefined` is the global provider. */
interface TelemetrySettings {
  readonly tracerProvider: TracerProvider | false | undefined;
  readonly meterProvider: MeterProvider | false | undefined;
}

const setting = settingOf<TelemetrySettings>();

const TELEMETRY_OPTIONS = new OptionTable<TelemetryOptions, TelemetrySettings>(
  lockOption,
  'option of telemetry',
  '',
  { tracerProvider: undefined, meterProvider: undefined },
  {
    tracerProvider: setting('tracerProvider', orFalse(false, instance(isTracerProvider, 'a TracerProvider, or false'))),
    meterProvider: setting('meterProvider', orFalse(false, instance(isMeterProvider, 'a MeterProvider, or false'))),
  },
);

/** @throws LockConfigError with the option, the value and the remedy */
function resolveTelemetryOptions(options: TelemetryOptions): TelemetrySettings {
  return TELEMETRY_OPTIONS.settings(lockOption.object('options', options, 'an object of options'));
}

function isTracerProvider(value: unknown): value is TracerProvider {
  return typeof (value as Partial<TracerProvider> | null)?.getTracer === 'function';
}

function isMeterProvider(value: unknown): value is MeterProvider {
  return typeof (value as Partial<MeterProvider> | null)?.getMeter === 'function';
}
