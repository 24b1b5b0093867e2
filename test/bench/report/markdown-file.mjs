import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { format, resolveConfig } from 'prettier';

const BEGIN = '<!-- npm run bench: begin -->';
const END = '<!-- npm run bench: end -->';

/** @throws when the file is there and does not say where the result belongs */
export function requireMarkers(file) {
  partsOf(file);
}

/** Puts the result between the markers of the file, or into a new one. */
export async function writeMarkdown(file, markdown) {
  const { before, after } = partsOf(file);
  const text = `${before}${BEGIN}\n\n${markdown}\n\n${END}${after}`;
  writeFileSync(file, await format(text, { ...(await resolveConfig(file)), parser: 'markdown' }));
}

function partsOf(file) {
  if (!existsSync(file)) return { before: '', after: '\n' };
  const text = readFileSync(file, 'utf8');
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)];
  if (begin < 0 || end < begin)
    throw new Error(`${file} has no lines "${BEGIN}" and "${END}"; add them where the result belongs.`);
  return { before: text.slice(0, begin), after: text.slice(end + END.length) };
}
