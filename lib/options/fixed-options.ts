import { isPlain } from './option-table.js';

const fixed = new WeakSet<object>();
/** A symbol, because it is no option of users: checks of options skip it, and a copy by `...` keeps it. */
const TEMPLATE = Symbol('key template');

interface Marked {
  readonly [TEMPLATE]?: string;
}

/** Marks options that never change, such as those of a decorator: a service resolves them once. */
export function fixedOptions<Options extends object>(options: Options): Options {
  fixed.add(options);
  return options;
}

/**
 * For options of a decorator with functions, such as `revive`: makes a copy for each instance, which is their `this`.
 * `undefined` where there is no function.
 */
export function boundOptions<Options extends object>(options: Options): ((instance: object) => Options) | undefined {
  const given: [string, unknown][] = Object.entries(options);
  if (!given.some(([, value]) => typeof value === 'function')) return undefined;
  const known = new WeakMap<object, Options>();
  return (instance) => {
    const bound = known.get(instance) ?? { ...options };
    if (known.has(instance)) return bound;
    for (const [name, value] of given) {
      if (typeof value === 'function') Object.assign(bound, { [name]: value.bind(instance) as unknown });
    }
    known.set(instance, fixedOptions(bound));
    return bound;
  };
}

/** A copy of the options that names the key template of their decorator, for events. */
export function withTemplate<Options extends object>(options: Options, template: string): Options {
  return { ...options, [TEMPLATE]: template };
}

/** The key template of the decorator with these options; `undefined` for options of a call. */
export function templateOf(options: object): string | undefined {
  return (options as Marked)[TEMPLATE];
}

/** Options of one call, by which the next call is compared: their names, in order, and their values. */
interface Resolution<Settings> {
  readonly prototype: unknown;
  readonly names: readonly string[];
  readonly values: readonly unknown[];
  readonly template: string | undefined;
  readonly settings: Settings;
}

/**
 * Resolves options over the defaults of one service: fixed ones at their first use, others at every use, unless they
 * equal those of the call before, such as the `{ ttl: '5m' }` of one line of code that runs again and again.
 */
export class OptionResolver<Options extends object, Settings extends object> {
  /** The settings of fixed options that were resolved: callers of a hot path look here before they call. */
  readonly ofFixed = new WeakMap<Options, Settings>();
  private last: Resolution<Settings> | undefined;

  constructor(private readonly resolve: (options: Options) => Settings) {}

  settingsOf(options: Options): Settings {
    const known = this.ofFixed.get(options);
    if (known) return known;
    if (this.last && isEqual(options, this.last)) return this.last.settings;
    const settings = this.resolve(options);
    if (fixed.has(options)) this.ofFixed.set(options, settings);
    else this.remember(options, settings);
    return settings;
  }

  /** Not a list or an object: what is in it may change without a trace. */
  private remember(options: Options, settings: Settings): void {
    const values: readonly unknown[] = Object.values(options);
    if (!isPlain(options) || !values.every(isPrimitive)) return;
    const names = Object.keys(options);
    this.last = {
      prototype: Object.getPrototypeOf(options),
      names,
      values,
      template: templateOf(options),
      settings,
    };
  }
}

/** A caller without types may give none, which `resolve` refuses. */
function isEqual(
  options: object | null | undefined,
  { prototype, names, values, template }: Resolution<unknown>,
): boolean {
  if (options == null || Object.getPrototypeOf(options) !== prototype) return false;
  if ((options as Marked)[TEMPLATE] !== template) return false;
  let index = 0;
  for (const name in options) {
    const value: unknown = options[name as keyof typeof options];
    if (name !== names[index] || value !== values[index]) return false;
    index += 1;
  }
  return index === names.length;
}

function isPrimitive(value: unknown): boolean {
  return value === null || (typeof value !== 'object' && typeof value !== 'function');
}
