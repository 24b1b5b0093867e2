import { median } from '../figures.mjs';
import { errorNotes, rounded } from '../report.mjs';

/** Makes a table with these columns of the rounds of each row. */
export function tableWith(columns) {
  return (rows) => ({
    columns: ['', ...columns.map(({ title }) => title)],
    rows: rows.map((row) => [
      row.name,
      ...(row.rounds.length > 0 ? columns.map(({ cell }) => cell(row.rounds, rows)) : []),
    ]),
    notes: errorNotes(rows),
  });
}

/** The median of a figure over the rounds, with as many digits as mean something. */
export function middle(title, figure) {
  return { title, cell: (rounds) => rounded(median(rounds.map((round) => round[figure]))) };
}

/** The median of a count. */
export function count(title, figure) {
  return { title, cell: (rounds) => whole(median(rounds.map((round) => round[figure]))) };
}

/** Of these, one is one too many, so they are not evened out. */
export function sum(title, figure) {
  return { title, cell: (rounds) => whole(rounds.reduce((total, round) => total + round[figure], 0)) };
}

/** The largest of all rounds. */
export function best(title, figure) {
  return { title, cell: (rounds) => rounded(Math.max(...rounds.map((round) => round[figure]))) };
}

/** The median of the ratio to the row of that name in the same turn. */
export function times(name, figure) {
  return {
    title: `× ${name}`,
    cell: (rounds, rows) => {
      const reference = rows.find((row) => row.name === name)?.rounds ?? [];
      const ratios = rounds.slice(0, reference.length).map((round, turn) => round[figure] / reference[turn][figure]);
      return ratios.length > 0 ? median(ratios).toFixed(2) : '–';
    },
  };
}

/** What the last round says in words. */
export function words(title, figure) {
  return { title, cell: (rounds) => rounds.at(-1)[figure] };
}

function whole(number) {
  return Math.round(number).toLocaleString('en-US');
}
