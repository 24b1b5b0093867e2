import { median } from '../median.mjs';
import { rounded } from '../report/rounded.mjs';
import { waitPercentiles } from '../waits.mjs';
import { runTogether } from '../worker/worker-process.mjs';
import { countMixed } from './mixed.mjs';

/** Above the time of the run, in ms: to get ready, and for those that still wait at its end. */
const PATIENCE = 60_000;
const COLUMNS = ['cycles/s', '×', 'reads/s', 'writes/s', 'read p99 ms', 'write p50 ms', 'write p99 ms', 'violations'];

/** Callers of several processes that take one key, nine of ten of them to read: against the same callers that write. */
export function readers({ title, note, processes, callers, hold }) {
  const all = processes * callers;
  const writers = Math.round(all / 10);
  const rows = {
    'ours, all write': [0, all],
    'ours, 9 of 10 read': [all - writers, writers],
    'ours, these writers alone': [0, writers],
  };
  const share = (count, number) =>
    Math.floor((count * (number + 1)) / processes) - Math.floor((count * number) / processes);
  return {
    title,
    note,
    rowsFor: (peers) => (peers.includes('ours') ? Object.keys(rows) : []),
    async round(row, { port, ms }) {
      const [reading, writing] = rows[row];
      const settings = Array.from({ length: processes }, (_, number) => {
        return { port, hold, ms, readers: share(reading, number), writers: share(writing, processes - 1 - number) };
      });
      return figures(await runTogether({ job: 'readers', settings, patience: PATIENCE + ms }));
    },
    table(results) {
      const rateOf = ({ rounds }) => median(rounds.map(({ cycles }) => cycles));
      return {
        columns: ['', ...COLUMNS],
        rows: results.map((result) => {
          const { name, rounds } = result;
          if (rounds.length === 0) return [name];
          const middle = (figureOf) => rounded(median(rounds.map(figureOf)));
          return [
            name,
            middle(({ cycles }) => cycles),
            (rateOf(result) / rateOf(results[0])).toFixed(2),
            middle(({ reads }) => reads),
            middle(({ writes }) => writes),
            middle(({ readWait }) => readWait.p99),
            middle(({ writeWait }) => writeWait.p50),
            middle(({ writeWait }) => writeWait.p99),
            rounds.reduce((total, { violations }) => total + violations, 0).toLocaleString('en-US'),
          ];
        }),
        notes: [],
      };
    },
  };
}

function figures(results) {
  const seconds = Math.max(...results.map(({ elapsed }) => elapsed)) / 1_000;
  const stays = results.flatMap((result) => result.stays);
  const writes = stays.filter((stay) => stay.writes).length;
  return {
    cycles: stays.length / seconds,
    reads: (stays.length - writes) / seconds,
    writes: writes / seconds,
    readWait: waitPercentiles(results.map(({ waits }) => waits.read)),
    writeWait: waitPercentiles(results.map(({ waits }) => waits.write)),
    violations: countMixed(stays),
  };
}
