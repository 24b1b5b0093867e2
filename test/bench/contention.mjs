import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { zipf } from '../../dist-sample/demo/zipf.js';
import {
  countViolations,
  firstLine,
  jainIndex,
  median,
  microseconds,
  StayRecorder,
  waitPercentiles,
  WaitRecorder,
} from './figures.mjs';
import { connectPeer, PEERS } from './peers/catalogue.mjs';
import { peerModules } from './peers/connecting.mjs';
import { errorNotes, rounded } from './report.mjs';
import { runTogether } from './worker/worker-process.mjs';

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

function contentionTable(rows, against) {
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

const WARM_UP_CYCLES = 300;
const WARM_UP_CALLERS = 50;

/** Connects the peer and warms it up, on keys of its own; answers what runs the callers of this process. */
export async function prepare({ peer, port, directory, ...load }) {
  return prepared(await connectPeer(peer, { port, modules: peerModules(directory) }), load);
}

/** Warms `run` up, on keys of its own; answers what runs the callers of this process. */
export async function prepared(run, load) {
  const warmUp = (number) => run(`warm-up:${process.pid}:${number}`, () => turn());
  for (let cycle = 0; cycle < WARM_UP_CYCLES; cycle++) await warmUp(cycle % 10);
  await Promise.all(Array.from({ length: Math.min(load.callers, WARM_UP_CALLERS) }, (_, caller) => warmUp(caller)));
  return () => measure(run, load);
}

async function measure(run, { callers, keys, holds, ms }) {
  const waits = new WaitRecorder();
  const stays = new StayRecorder();
  const served = Array.from({ length: callers }, () => 0);
  let errors = 0;
  let firstError;
  const began = microseconds();
  const end = began + ms * 1_000;

  const call = async (_, caller) => {
    const hold = holds[caller] ?? 0;
    const nextKey = KEYS[keys](caller);
    while (microseconds() < end) {
      const key = nextKey();
      const asked = microseconds();
      try {
        await run(key, async (token) => {
          const entered = microseconds();
          waits.record(entered - asked);
          await (hold > 0 ? sleep(hold) : turn());
          if (keys !== 'own') stays.record(key, entered, microseconds(), token);
        });
        served[caller] += 1;
      } catch (error) {
        errors += 1;
        firstError ??= firstLine(error);
        await turn();
      }
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  const elapsed = (microseconds() - began) / 1_000;
  return { elapsed, served, errors, firstError, waits: waits.encoded(), stays: stays.recorded() };
}

const KEYS_OF_A_CALLER = 64;

/** Which keys callers take: each answers the next key of one caller. */
const KEYS = {
  /** Nobody else's: a caller goes round its own. */
  own: (caller) => {
    let next = 0;
    return () => `own:${process.pid}:${caller}:${next++ % KEYS_OF_A_CALLER}`;
  },
  hot: () => () => 'hot',
  zipf: () => {
    const draw = zipf(1_000, 1);
    return () => `zipf:${draw()}`;
  },
};
