const fixed = new WeakSet<object>();

/** Marks options that never change, as those of a decorator: a service resolves them once. */
export function fixedOptions<Options extends object>(options: Options): Options {
  fixed.add(options);
  return options;
}

/** Resolves options over the defaults of one service: fixed ones with their first use, others with every use. */
export class OptionResolver<Options extends object, Settings extends object> {
  private readonly resolved = new WeakMap<Options, Settings>();

  constructor(private readonly resolve: (options: Options) => Settings) {}

  settingsOf(options: Options): Settings {
    const known = this.resolved.get(options);
    if (known) return known;
    const settings = this.resolve(options);
    if (fixed.has(options)) this.resolved.set(options, settings);
    return settings;
  }
}
