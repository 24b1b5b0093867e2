import { PEERS } from '../peers/catalogue.mjs';
import { runTogether } from '../worker/worker-process.mjs';
import { countViolations } from './exclusion.mjs';
import { jainIndex } from './fairness.mjs';
import { contentionTable } from './table.mjs';
import { waitPercentiles } from '../waits.mjs';

/** Above the time of the run, in ms: to get ready, and for those that still wait at its end. */
const PATIENCE = 20_000;

/**
 * Callers in several processes that go on taking locks and giving them back: they hold a lock for `hold` ms, or for one
 * turn of the event loop. `slowHolder` is what the first caller of the first process does instead.
 */
export function contention({
  title,
  note,
  processes,
  callers,
  keys,
  hold = 0,
  slowHolder = hold,
  patience = PATIENCE,
}) {
  const uncontended = keys === 'own';
  const suits = (peer) => {
    const { only } = PEERS[peer];
    if (only === 'uncontended') return uncontended;
    return only !== 'withinProcess' || (!uncontended && processes === 1);
  };
  const holdsOf = (number) =>
    Array.from({ length: callers }, (_, caller) => (number === 0 && caller === 0 ? slowHolder : hold));

  return {
    title,
    note,
    rowsFor: (peers) => peers.filter(suits),
    async round(peer, { port, control, directory, ms }) {
      const load = { peer, port, directory, callers, keys, ms };
      const results = await runTogether({
        job: 'contention',
        settings: Array.from({ length: processes }, (_, number) => ({ ...load, holds: holdsOf(number) })),
        patience: patience + ms,
        onPrepared: () => control.reset(),
      });
      return figures(results, await control.statistics());
    },
    table: (rows) => contentionTable(rows, uncontended ? 'raw' : 'best peer'),
  };
}

function figures(results, { commands, cpu }) {
  const servedByProcess = results.map(({ served }) => served.reduce((total, count) => total + count, 0));
  const cycles = servedByProcess.reduce((total, count) => total + count, 0);
  return {
    cyclesPerSecond: (cycles / Math.max(...results.map(({ elapsed }) => elapsed))) * 1_000,
    wait: waitPercentiles(results.map(({ waits }) => waits)),
    commandsPerCycle: commands / Math.max(cycles, 1),
    redisMicrosecondsPerCycle: cpu / Math.max(cycles, 1),
    fairness: { callers: jainIndex(results.flatMap(({ served }) => served)), processes: jainIndex(servedByProcess) },
    errors: results.reduce((total, { errors }) => total + errors, 0),
    violations: countViolations(results.map(({ stays }) => stays)),
    firstError: results.find(({ firstError }) => firstError !== undefined)?.firstError,
  };
}
