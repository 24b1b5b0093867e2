import { abortSignal, instance, timer, wholeNumber, type Duration } from '../../options/checks.js';
import { primitiveOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';

/** How a latch is defined. */
export interface LatchDefinition {
  /** How many arrivals open the latch. */
  count: number;
  /**
   * How long the latch is kept after its definition, and again after each arrival: also once it is open. At least
   * 100 ms. Choose it longer than the longest pause between two arrivals, and than anybody comes late to `await`.
   */
  ttl: Duration;
}

/** Which backend keeps the latch. */
export interface LatchOptions {
  /** The name of one of the module's `backends`. @default the module's own */
  backend?: string;
}

/** How a call waits for a latch. */
export interface LatchWaitOptions extends LatchOptions {
  /** How long to wait at most, counted from the call. 0 looks once, `Infinity` waits for ever. @default '5s' */
  wait?: Duration;
  /** Ends the wait, which then rejects with `signal.reason`. */
  signal?: AbortSignal;
}

interface DefinitionSettings {
  readonly count: number;
  readonly ttl: number;
  readonly backend: string | undefined;
}

interface WaitSettings {
  readonly wait: number;
  readonly signal: AbortSignal | undefined;
  readonly backend: string | undefined;
}

const backend = instance((value): value is string => typeof value === 'string', 'the name of a backend');
const defined = settingOf<DefinitionSettings>();
const waiting = settingOf<WaitSettings>();

const DEFINITION = new OptionTable<LatchDefinition & LatchOptions, DefinitionSettings>(
  primitiveOption,
  'latch option',
  '',
  { count: 0, ttl: 0, backend: undefined },
  {
    count: defined('count', wholeNumber),
    ttl: defined('ttl', timer(100)),
    backend: defined('backend', backend),
  },
);

const LOOKUP = new OptionTable<LatchOptions, Pick<WaitSettings, 'backend'>>(
  primitiveOption,
  'latch option',
  '',
  { backend: undefined },
  { backend: settingOf<Pick<WaitSettings, 'backend'>>()('backend', backend) },
);

const WAIT = new OptionTable<LatchWaitOptions, WaitSettings>(
  primitiveOption,
  'latch option',
  '',
  { wait: 5_000, signal: undefined, backend: undefined },
  {
    wait: waiting('wait', (value, option, checks) =>
      value === Infinity ? Infinity : checks.timerMilliseconds(option, value, 0),
    ),
    signal: waiting('signal', abortSignal),
    backend: waiting('backend', backend),
  },
);

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function latchDefinition(options: LatchDefinition & LatchOptions): DefinitionSettings {
  const given = primitiveOption.object('definition', options, "an object such as { count: 3, ttl: '1h' }");
  const settings = DEFINITION.settings(given);
  primitiveOption.require(settings.count > 0, 'count', options.count, 'how many arrivals open the latch');
  primitiveOption.require(settings.ttl > 0, 'ttl', options.ttl, "how long the latch is kept, such as '1h'");
  return settings;
}

/** The backend that keeps the latch. @throws PrimitiveConfigError with the option, the value and the remedy */
export function latchBackend(options: LatchOptions): string | undefined {
  return LOOKUP.settings(primitiveOption.object('options', options, "an object such as { backend: 'name' }")).backend;
}

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function latchWait(options: LatchWaitOptions): WaitSettings {
  return WAIT.settings(primitiveOption.object('options', options, "an object such as { wait: '30s' }"));
}
