import { median } from '../median.mjs';
import { rounded } from '../report/rounded.mjs';
import { runTogether } from '../worker/worker-process.mjs';

const PATIENCE = 60_000;
const FEWEST_INTERVALS = 3;

/** What it costs one instance of ours, and Redis, to keep many locks. The rows stand for the number of locks. */
export function renewal({ title, note, locks, ttl }) {
  const interval = ttl / 3;
  const rows = { 'no locks': 0, [`${locks.toLocaleString('en-US')} locks`]: locks };
  return {
    title,
    note,
    rowsFor: (peers) => (peers.includes('ours') ? Object.keys(rows) : []),
    async round(row, { port, control, ms }) {
      const intervals = Math.max(FEWEST_INTERVALS, Math.round(ms / interval));
      const settings = [{ port, locks: rows[row], ttl, ms: intervals * interval }];
      const onPrepared = () => control.reset();
      const [delays] = await runTogether({ job: 'renewal', settings, patience: PATIENCE + ms, onPrepared });
      const { scriptCalls, cpu } = await control.statistics();
      const renewals = rows[row] * intervals;
      const each = renewals === 0 ? { calls: 0, cpu: 0 } : { calls: scriptCalls / renewals, cpu: cpu / renewals };
      return { ...delays, scriptCallsPerRenewal: each.calls, redisMicrosecondsPerRenewal: each.cpu };
    },
    table: (results) => ({
      columns: ['', 'delay p50 ms', 'delay p99 ms', 'delay max ms', 'script calls', 'Redis µs', 'lost'],
      rows: results.map(({ name, rounds }) => [name, ...(rounds.length > 0 ? cells(rounds) : [])]),
      notes: [],
    }),
  };
}

function cells(rounds) {
  const middle = (figure) => median(rounds.map((round) => round[figure]));
  return [
    rounded(middle('p50')),
    rounded(middle('p99')),
    rounded(middle('max')),
    middle('scriptCallsPerRenewal').toFixed(4),
    rounded(middle('redisMicrosecondsPerRenewal')),
    String(rounds.reduce((total, { lost }) => total + lost, 0)),
  ];
}
