import { availableParallelism, cpus, totalmem, type } from 'node:os';
import Table from 'cli-table3';

/** Names stand left and figures stand right. */
export function aligned(column) {
  return column === 0 ? 'left' : 'right';
}

/** As many digits as mean something: 12,345 and 123 and 12.3 and 1.23. */
export function rounded(number) {
  if (!Number.isFinite(number)) return '–';
  const decimals = Math.abs(number) >= 100 ? 0 : Math.abs(number) >= 10 ? 1 : 2;
  return number.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

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

/** What went wrong first, for each row with errors. */
export function errorNotes(rows) {
  return rows.flatMap(errorNote);
}

function errorNote({ name, rounds }) {
  const message = rounds.find(({ firstError }) => firstError !== undefined)?.firstError;
  return message === undefined ? [] : [`${name}, the first of its errors: ${message}`];
}

/**
 * What the figures were taken on, a line each: `Node.js: 24.1.0`, and `redlock 5.0.0` where the value says the name.
 */
export function factLines({ environment, peers }) {
  return Object.entries({ ...environment, ...peers }).map(([name, value]) =>
    value.startsWith(`${name} `) ? value : `${name}: ${value}`,
  );
}

/** What the figures were taken on. */
export async function environmentOf(control) {
  return {
    date: new Date().toISOString().slice(0, 10),
    'Node.js': process.versions.node,
    server: await control.version(),
    processor: `${cpus()[0]?.model.trim() || process.arch}, ${availableParallelism()} cores`,
    system: `${type()} ${process.arch}, ${Math.round(totalmem() / 2 ** 30)} GiB`,
  };
}
