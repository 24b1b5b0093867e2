import Table from 'cli-table3';
import { aligned } from './aligned.mjs';

const NO_RULES_BETWEEN_ROWS = { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' };

export function terminalTable({ title, note, columns, rows, notes }, colours) {
  const table = new Table({
    // On two lines, because there are many.
    head: columns.map((column) => column.replace(' ', '\n')),
    colAligns: columns.map((_, index) => aligned(index)),
    chars: NO_RULES_BETWEEN_ROWS,
    ...(!colours && { style: { head: [], border: [] } }),
  });
  for (const cells of rows) table.push(columns.map((_, index) => cells[index] ?? ''));
  return [`\n${title}`, note, table.toString(), ...notes].join('\n');
}
