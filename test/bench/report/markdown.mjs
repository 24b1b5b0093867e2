import { aligned } from './aligned.mjs';
import { factLines } from './facts.mjs';

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
