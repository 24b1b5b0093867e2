import Table from 'cli-table3';
import type { ContentionReport } from './contention.js';
import { BOUNDS } from './settings.js';

export function summary(report: ContentionReport): string {
  const { mischief, findings, findingsInAll } = report;
  const table = new Table({ style: { head: [], border: [] }, colAligns: ['left', 'right'] });
  const rows: [string, number | string][] = [
    ['seed', report.seed],
    ['cycles', report.cycles],
    ['processes killed', mischief.kill],
    ['processes stopped', mischief.stop],
    ['scripts flushed', mischief.flush],
    ['clients killed', mischief.clientKill],
    ['subscribers killed', mischief.pubsubKill],
    ['connections dropped', mischief.drop],
    ['locks lost', report.lost],
    ['fenced off', report.fencedOff],
    ['longest wait', `${report.longestWait} of ${BOUNDS.wait} ms`],
    ['longest recovery', `${report.longestRecovery} of ${BOUNDS.recovery} ms`],
    ['violations', findingsInAll],
  ];
  table.push(...rows);
  return [table.toString(), ...findings].join('\n');
}
