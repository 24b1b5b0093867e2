/** A symbol, because it is no option of users: checks of options skip it, and a copy by `...` keeps it. */
const TEMPLATE = Symbol('key template');

interface Marked {
  readonly [TEMPLATE]?: string;
}

/** A copy of the options that names the key template of their decorator, for events. */
export function withTemplate<Options extends object>(options: Options, template: string): Options {
  return { ...options, [TEMPLATE]: template };
}

/** The key template of the decorator with these options; `undefined` for options of a call. */
export function templateOf(options: object): string | undefined {
  return (options as Marked)[TEMPLATE];
}
