/**
 * How other libraries and languages write an argument. In a template of this library it would be text, and all calls
 * would share one key. A `#` or `$` after a letter or digit (`c#`) is text, and so is a `{tag}` at the beginning that
 * more text follows: the hash tag of a Redis Cluster.
 */
const FOREIGN: readonly RegExp[] = [
  /\$\{[^}]*\}?/gu,
  /(?<![\p{L}\p{N}])[#$][\p{L}_{][\p{L}\p{N}_.{}[\]]*/gu,
  /(?<![\p{L}\p{N}])\$\d+/gu,
  /(?<=.)\{[^}]*\}?/gsu,
  /^\{\d*\}/gu,
  /^\{[^}]*\}?$/gu,
];

/** The placeholders of this library; `<` occurs in no other text of a template. */
const OURS = '<>';

/** The text of a template that another library would take for an argument; `undefined` if there is none. */
export function foreignPlaceholder(template: string): string | undefined {
  const text = template.replace(/<[^<>]*>/g, OURS);
  const found = FOREIGN.flatMap((pattern) => text.match(pattern) ?? []);
  return found.find((each) => !each.includes(OURS));
}
