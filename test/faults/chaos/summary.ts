import Table from 'cli-table3';
import type { ContentionReport } from './contention.js';
import { BOUNDS } from './settings.js';

const TITLES: Readonly<Record<string, string>> = {
  kill: 'processes killed',
  stop: 'processes stopped',
  drop: 'connections dropped',
  flush: 'scripts flushed',
  clientKill: 'clients killed',
  pubsubKill: 'subscribers killed',
  serverStop: 'standstills of the server',
  serverRestart: 'restarts of the server',
  sessionKill: 'sessions ended by the server',
  nodeStop: 'standstills of a node',
  nodeRestart: 'restarts of a node',
};

/** One column for each run. */
export function summary(...reports: readonly ContentionReport[]): string {
  const table = new Table({
    style: { head: [], border: [] },
    colAligns: ['left', ...reports.map(() => 'right' as const)],
  });
  const row = (title: string, value: (report: ContentionReport) => number | string) =>
    table.push([title, ...reports.map(value)]);
  row('locks of', ({ peer }) => peer);
  row('backend', ({ peer, backend }) => (peer === 'ours' ? backend : 'redis'));
  row('seed', ({ seed }) => seed);
  row('cycles', ({ cycles }) => cycles);
  row('of which read', ({ reads }) => reads);
  row('cycles a second', ({ rate }) => rate.toFixed(1));
  for (const kind of new Set(reports.flatMap(({ mischief }) => Object.keys(mischief)))) {
    row(TITLES[kind] ?? kind, ({ mischief }) => mischief[kind] ?? 0);
  }
  row('locks lost', ({ lost }) => lost);
  row('fenced off', ({ fencedOff }) => fencedOff);
  row('longest wait', ({ longestWait }) => `${longestWait} of ${BOUNDS.wait} ms`);
  row('longest recovery', ({ longestRecovery, recoveryBound }) => `${longestRecovery} of ${recoveryBound} ms`);
  row('violations', ({ findingsInAll }) => findingsInAll);
  return [table.toString(), ...reports.flatMap(({ findings }) => findings)].join('\n');
}
