import type { Check } from './checks.js';
import type { OptionChecks } from './option-checks.js';

type Writable<T> = { -readonly [Name in keyof T]: T[Name] };

/** Checks one option and writes it into the settings. */
export type Rule<Settings> = (
  settings: Writable<Settings>,
  value: unknown,
  option: string,
  checks: OptionChecks,
) => void;

/** Makes rules that write one checked value: `const setting = settingOf<Settings>(); setting('ttl', duration(1))`. */
export function settingOf<Settings>() {
  return <Name extends keyof Settings>(name: Name, check: Check<Settings[Name]>): Rule<Settings> =>
    (settings, value, option, checks) => {
      settings[name] = check(value, option, checks);
    };
}

/** The options of one kind: their names, checks and defaults. */
export class OptionTable<Options extends object, Settings extends object> {
  private readonly names: readonly string[];
  private readonly rules: ReadonlyMap<string, Rule<Settings>>;

  /** `kind` is the word for such an option in errors; `path` precedes its name there. */
  constructor(
    private readonly checks: OptionChecks,
    private readonly kind: string,
    private readonly path: string,
    readonly defaults: Settings,
    rules: { readonly [Name in keyof Required<Options>]: Rule<Settings> },
  ) {
    this.rules = new Map(Object.entries<Rule<Settings>>(rules));
    this.names = [...this.rules.keys()];
  }

  /**
   * The settings that the options describe, over those of `base`. An option that is `undefined` counts as not given.
   *
   * @throws the ConfigError for an unknown option and for a value that an option cannot take
   */
  settings(options: object, base: Settings = this.defaults): Writable<Settings> {
    const settings: Writable<Settings> = { ...base };
    for (const name in options) {
      const rule = this.rules.get(name);
      if (!rule) throw this.unknown(name);
      this.apply(rule, name, options, settings);
    }
    // The accessors of a class are not enumerable.
    if (!isPlain(options)) for (const [name, rule] of this.rules) this.apply(rule, name, options, settings);
    return settings;
  }

  private apply(rule: Rule<Settings>, name: string, options: object, settings: Writable<Settings>): void {
    const value = (options as Readonly<Record<string, unknown>>)[name];
    if (value !== undefined) rule(settings, value, this.path + name, this.checks);
  }

  private unknown(name: string): Error {
    const known = this.names.map((each) => this.path + each);
    return this.checks.unknown(this.kind, this.path + name, known);
  }
}

/** Checks options inside an option, by a table of their own. */
export function nested<Settings extends object>(
  table: Pick<OptionTable<object, Settings>, 'settings'>,
  remedy: string,
): Check<Settings> {
  return (value, option, checks) => table.settings(checks.object(option, value, remedy));
}

/** Whether all options that the object has can be enumerated. */
export function isPlain(options: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(options);
  return prototype === Object.prototype || prototype === null;
}
