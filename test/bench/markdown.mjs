import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { format, resolveConfig } from 'prettier';
import { aligned, factLines } from './report.mjs';

/** The whole result as Markdown, below a heading of the second level. */
export function markdownOf({ environment, peers, settings, tables }) {
  return [
    `A run with ${settings.rounds} rounds of ${settings.ms} ms, of which these are the medians; errors and violations are the sums. On:`,
    factLines({ environment, peers })
      .map((line) => `- ${line}`)
      .join('\n'),
    ...tables.map(section),
  ].join('\n\n');
}

function section({ title, note, columns, rows, notes }) {
  const rule = columns.map((_, index) => (aligned(index) === 'left' ? '---' : '--:'));
  const lines = [columns, rule, ...rows.map((cells) => columns.map((_, index) => cells[index] ?? ''))];
  const table = lines.map((cells) => `| ${cells.map(escaped).join(' | ')} |`).join('\n');
  return [`### ${title}`, note, table, notes.map((each) => `- ${escaped(each)}`).join('\n')]
    .filter(Boolean)
    .join('\n\n');
}

function escaped(text) {
  return text.replaceAll('\n', ' ').replaceAll('|', '\\|');
}

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
