import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { format, resolveConfig } from 'prettier';

/** @throws when the file is there and does not say where the result belongs */
export function requireMarkers(file, command) {
  partsOf(file, command);
}

/** Puts the result between the markers of the file, or into a new one. */
export async function writeMarkdown(file, command, markdown) {
  const { before, begin, end, after } = partsOf(file, command);
  const text = `${before}${begin}\n\n${markdown}\n\n${end}${after}`;
  writeFileSync(file, await format(text, { ...(await resolveConfig(file)), parser: 'markdown' }));
}

function partsOf(file, command) {
  const [begin, end] = ['begin', 'end'].map((place) => `<!-- ${command}: ${place} -->`);
  if (!existsSync(file)) return { before: '', begin, end, after: '\n' };
  const text = readFileSync(file, 'utf8');
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from)
    throw new Error(`${file} has no lines "${begin}" and "${end}"; add them where the result belongs.`);
  return { before: text.slice(0, from), begin, end, after: text.slice(to + end.length) };
}
