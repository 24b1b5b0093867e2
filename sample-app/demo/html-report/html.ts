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

/** Colour-blind readers can distinguish the colours; the charts read them from here. */
export const STYLES = new Html(`
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --panel: #ffffff; --text: #1b1f24; --muted: #565e68; --line: #d9dde2;
  --good: #0b6b4f; --bad: #b3261e; --neutral: #6a5300;
  --sold: #c8500b; --left: #0062ad;
  --series-1: #c8500b; --series-2: #0062ad; --series-3: #2e93c9;
  --series-4: #00785a; --series-5: #a8478a; --series-6: #8a6d00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #101317; --panel: #1a1f25; --text: #e9ecef; --muted: #a9b1ba; --line: #343b44;
    --good: #4fd1a5; --bad: #ff8a80; --neutral: #e8c14a;
    --sold: #ff9150; --left: #5db0ff;
    --series-1: #ff9150; --series-2: #5db0ff; --series-3: #a5dcff;
    --series-4: #35c79c; --series-5: #ea96cd; --series-6: #e8c14a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 74rem; margin: 0 auto; padding: 1.5rem 1rem 2rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 0; }
h3 { font-size: 1rem; margin: 0; }
p { margin: 0; }
section, .verdict { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; margin-top: 1rem; }
.note, figcaption p, footer { color: var(--muted); font-size: .9rem; }
.verdict { border-left: .5rem solid var(--mark); overflow-wrap: anywhere; }
.verdict strong { color: var(--mark); font-size: 1.15rem; letter-spacing: .05em; }
.passed { --mark: var(--good); }
.failed { --mark: var(--bad); }
.unprotected { --mark: var(--neutral); }
.scroll { overflow-x: auto; margin-top: .75rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child { text-align: left; }
thead th { color: var(--muted); font-weight: 600; }
.broken :is(th, td) { color: var(--bad); font-weight: 600; }
.panels { display: grid; gap: 1.25rem; grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr)); margin-top: .75rem; }
.pair { display: grid; gap: 0 1rem; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); }
section, figure { margin-inline: 0; min-width: 0; }
figure { display: flex; flex-direction: column; justify-content: space-between; margin-block: 0; }
.chart { position: relative; height: 15rem; margin-top: .5rem; }
.chart.tall { height: 22rem; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; margin: .5rem 0 0; padding: 0; font-size: .9rem; }
.legend li::before { content: ""; display: inline-block; width: 1.75rem; vertical-align: middle; margin-right: .5rem; border-top: 3px var(--stroke, solid) var(--colour); }
@media (max-width: 44rem) {
  table, tbody { display: block; }
  thead { position: absolute; clip-path: inset(50%); }
  tr { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1.25rem; padding: .6rem 0; border-bottom: 1px solid var(--line); }
  th, td { border: 0; padding: .15rem 0; }
  tr > th { grid-column: 1 / -1; }
  td { display: flex; justify-content: space-between; gap: .5rem; }
  td::before { content: attr(data-column); color: var(--muted); font-weight: 400; }
}
footer { margin-top: 1rem; }
details { margin-top: .75rem; }
summary { cursor: pointer; }
dl { display: grid; gap: .25rem 1.5rem; grid-template-columns: repeat(auto-fit, minmax(max(8rem, 20%), 1fr)); margin: .75rem 0 0; }
dt { color: var(--muted); font-size: .9rem; }
dd { margin: 0; overflow-wrap: anywhere; }
`);
