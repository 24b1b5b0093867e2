/** Text that is already HTML. */
export class Html {
  constructor(readonly text: string) {}
}

/** A template whose values are escaped, unless they are HTML themselves. */
export function html(template: TemplateStringsArray, ...values: (string | number | Html | Html[])[]): Html {
  return new Html(String.raw({ raw: template }, ...values.map(textOf)));
}

function textOf(value: string | number | Html | Html[]): string {
  if (value instanceof Html) return value.text;
  if (Array.isArray(value)) return value.map(textOf).join('\n');
  return String(value).replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** JSON for a script element, which nothing in it can end. */
export function inlineJson(value: unknown): Html {
  return new Html(JSON.stringify(value).replaceAll('<', String.raw`\u003c`));
}

/** A program for a script element. Its source map stays behind: a browser would ask for it. */
export function inlineScript(code: string): Html {
  const escaped = code.replaceAll(/<(?=\/script|!--)/gi, String.raw`\x3c`);
  return new Html(escaped.replaceAll(/^\/\/# sourceMappingURL=.*$/gm, ''));
}
