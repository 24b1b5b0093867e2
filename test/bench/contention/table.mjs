import { median } from '../median.mjs';
import { errorNotes } from '../report/error-notes.mjs';
import { rounded } from '../report/rounded.mjs';

const COLUMNS = [
  'cycles/s',
  '×',
  'p50 ms',
  'p99 ms',
  'max ms',
  'commands',
  'Redis µs',
  'Jain callers',
  'Jain processes',
  'errors',
  'violations',
];

/** Neither the limit nor ourselves: what ours is measured against where several wait for one lock. */
const NO_REFERENCE = ['mutex', 'ours'];

export function contentionTable(rows, against) {
  const reference = referenceOf(rows, against);
  const ratio = (row) => (reference ? (rateOf(row) / rateOf(reference)).toFixed(2) : '–');
  return {
    columns: ['', ...COLUMNS.map((column) => (column === '×' ? `× ${reference?.name ?? against}` : column))],
    rows: rows.map((row) => [row.name, ...(row.rounds.length > 0 ? cells(row.rounds, ratio(row)) : [])]),
    notes: errorNotes(rows),
  };
}

/** `raw`, or the fastest of the peers that kept callers apart. */
function referenceOf(rows, against) {
  const measured = rows.filter(({ rounds }) => rounds.length > 0);
  if (against === 'raw') return measured.find(({ name }) => name === 'raw');
  const sound = ({ rounds }) => rounds.every(({ violations }) => violations === 0);
  return measured
    .filter((row) => !NO_REFERENCE.includes(row.name) && sound(row))
    .toSorted((a, b) => rateOf(b) - rateOf(a))[0];
}

function rateOf({ rounds }) {
  return median(rounds.map(({ cyclesPerSecond }) => cyclesPerSecond));
}

function cells(rounds, ratio) {
  const middle = (figureOf) => median(rounds.map(figureOf));
  // One of these is one too many, so they are not evened out.
  const sum = (figureOf) => rounds.reduce((total, round) => total + figureOf(round), 0).toLocaleString('en-US');
  return [
    rounded(middle(({ cyclesPerSecond }) => cyclesPerSecond)),
    ratio,
    rounded(middle(({ wait }) => wait.p50)),
    rounded(middle(({ wait }) => wait.p99)),
    rounded(middle(({ wait }) => wait.max)),
    rounded(middle(({ commandsPerCycle }) => commandsPerCycle)),
    rounded(middle(({ redisMicrosecondsPerCycle }) => redisMicrosecondsPerCycle)),
    middle(({ fairness }) => fairness.callers).toFixed(2),
    middle(({ fairness }) => fairness.processes).toFixed(2),
    sum(({ errors }) => errors),
    sum(({ violations }) => violations),
  ];
}
