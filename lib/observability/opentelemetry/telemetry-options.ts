import type { MeterProvider, TracerProvider } from '@opentelemetry/api';
import { instance, orFalse } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';

/** The options of `RedisLockTelemetryModule.forRoot`. Unknown options are refused. */
export interface TelemetryOptions {
  /** Makes the spans; `false`: no spans. @default the global one */
  tracerProvider?: TracerProvider | false;
  /** Makes the metrics; `false`: no metrics. @default the global one, as registered before the application starts */
  meterProvider?: MeterProvider | false;
}

/** `TelemetryOptions` checked; `undefined` is the global provider. */
export interface TelemetrySettings {
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
export function resolveTelemetryOptions(options: TelemetryOptions): TelemetrySettings {
  return TELEMETRY_OPTIONS.settings(lockOption.object('options', options, 'an object of options'));
}

function isTracerProvider(value: unknown): value is TracerProvider {
  return typeof (value as Partial<TracerProvider> | null)?.getTracer === 'function';
}

function isMeterProvider(value: unknown): value is MeterProvider {
  return typeof (value as Partial<MeterProvider> | null)?.getMeter === 'function';
}
