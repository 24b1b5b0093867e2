/**
 * What other libraries and languages write for an argument. In a template of ours it would be text, and all calls would
 * share one key. A `#` or `$` behind a letter or digit (`c#`) is text, and so is a `{tag}` at the beginning with
 * something behind it: the hash tag of Redis Cluster.
 */
const FOREIGN: readonly RegExp[] = [
  /\$\{[^}]*\}?/gu,
  /(?<![\p{L}\p{N}])[#$][\p{L}_{][\p{L}\p{N}_.{}[\]]*/gu,
  /(?<![\p{L}\p{N}])\$\d+/gu,
  /(?<=.)\{[^}]*\}?/gsu,
  /^\{\d*\}/gu,
  /^\{[^}]*\}?$/gu,
];

/** Where an argument of ours stands; `<` stands in no other text of a template. */
const OURS = '<>';

/** The text of a template that would have named an argument elsewhere; `undefined` where there is none. */
export function foreignPlaceholder(template: string): string | undefined {
  const text = template.replace(/<[^<>]*>/g, OURS);
  const found = FOREIGN.flatMap((pattern) => text.match(pattern) ?? []);
  return found.find((each) => !each.includes(OURS));
}
