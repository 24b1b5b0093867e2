import Table from 'cli-table3';
import type { ContentionReport } from './contention.js';
import { BOUNDS } from './settings.js';

/** One column for each run. */
export function summary(...reports: readonly ContentionReport[]): string {
  const table = new Table({
    style: { head: [], border: [] },
    colAligns: ['left', ...reports.map(() => 'right' as const)],
  });
  const row = (title: string, value: (report: ContentionReport) => number | string) =>
    table.push([title, ...reports.map(value)]);
  row('locks of', ({ peer }) => peer);
  row('seed', ({ seed }) => seed);
  row('cycles', ({ cycles }) => cycles);
  row('cycles a second', ({ rate }) => rate.toFixed(1));
  row('processes killed', ({ mischief }) => mischief.kill);
  row('processes stopped', ({ mischief }) => mischief.stop);
  row('scripts flushed', ({ mischief }) => mischief.flush);
  row('clients killed', ({ mischief }) => mischief.clientKill);
  row('subscribers killed', ({ mischief }) => mischief.pubsubKill);
  row('connections dropped', ({ mischief }) => mischief.drop);
  row('locks lost', ({ lost }) => lost);
  row('fenced off', ({ fencedOff }) => fencedOff);
  row('longest wait', ({ longestWait }) => `${longestWait} of ${BOUNDS.wait} ms`);
  row('longest recovery', ({ longestRecovery }) => `${longestRecovery} of ${BOUNDS.recovery} ms`);
  row('violations', ({ findingsInAll }) => findingsInAll);
  return [table.toString(), ...reports.flatMap(({ findings }) => findings)].join('\n');
}
