import { median } from '../median.mjs';
import { rounded } from '../report/rounded.mjs';
import { runTogether } from '../worker/worker-process.mjs';

const PATIENCE = 60_000;

/** What one instance of ours needs for each of many locks that it holds, and for each of many that it waits for. */
export function memory({ title, note, locks }) {
  return {
    title,
    note,
    rowsFor: (peers) => (peers.includes('ours') ? ['held lock', 'waiting lock'] : []),
    async round(what, { port }) {
      const settings = [{ what, port, locks }];
      const [figures] = await runTogether({ job: 'memory', settings, execArgv: ['--expose-gc'], patience: PATIENCE });
      return figures;
    },
    table: (rows) => ({
      columns: ['one', 'heap bytes', 'RSS bytes'],
      rows: rows.map(({ name, rounds }) => [name, ...(rounds.length > 0 ? cells(rounds) : [])]),
      notes: [],
    }),
  };
}

function cells(rounds) {
  return ['heap', 'rss'].map((figure) => rounded(Math.round(median(rounds.map((round) => round[figure])))));
}
