/**
 * Returns a matcher for a Redis glob (`stringmatchlen` in its util.c): `*`, `?`, `[a-z]`, `[^a]`, and `\` before a
 * literal character. As in Redis, `?` and `[...]` stand for one byte; a letter outside ASCII has several.
 */
export function redisGlob(pattern: string): (text: string) => boolean {
  const expression = new RegExp(`^${translated(bytesOf(pattern))}$`);
  return (text) => expression.test(bytesOf(text));
}

/** The glob that matches this text alone. */
export function escapeGlob(text: string): string {
  return text.replace(/[\\*?[\]]/g, '\\$&');
}

/** One character for each byte. */
function bytesOf(text: string): string {
  return Buffer.from(text).toString('latin1');
}

function translated(pattern: string): string {
  let expression = '';
  for (let at = 0; at < pattern.length; at++) {
    const character = pattern.charAt(at);
    if (character === '*') {
      while (pattern[at + 1] === '*') at++;
      expression += '[^]*';
    } else if (character === '?') {
      expression += '[^]';
    } else if (character === '[') {
      const end = endOfClass(pattern, at + 1);
      expression += characterClass(pattern.slice(at + 1, end));
      at = end;
    } else {
      if (character === '\\' && at + 1 < pattern.length) at++;
      expression += literal(pattern.charAt(at));
    }
  }
  return expression;
}

/** The index of the closing `]`; the end of the pattern if the class is not closed. */
function endOfClass(pattern: string, from: number): number {
  let at = from + Number(pattern[from] === '^');
  while (at < pattern.length && pattern[at] !== ']') at += lengthOfMember(pattern, at);
  return at;
}

function characterClass(content: string): string {
  const negated = content.startsWith('^');
  let members = '';
  let at = Number(negated);
  while (at < content.length) {
    const length = lengthOfMember(content, at);
    const [first, last] = [content.charAt(at), content.charAt(at + length - 1)];
    if (length === 3) members += [first, last].toSorted().map(literal).join('-');
    else members += literal(last);
    at += length;
  }
  return `[${negated ? '^' : ''}${members}]`;
}

/** A member of a class is `\x`, a range `a-z`, or one character. */
function lengthOfMember(pattern: string, at: number): number {
  if (pattern[at] === '\\' && at + 1 < pattern.length) return 2;
  return pattern[at + 1] === '-' && at + 2 < pattern.length ? 3 : 1;
}

function literal(character: string): string {
  return `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`;
}
