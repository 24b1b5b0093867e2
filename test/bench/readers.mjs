import { setTimeout as sleep } from 'node:timers/promises';
import { median, microseconds, waitPercentiles, WaitRecorder } from './figures.mjs';
import { rounded } from './report.mjs';
import { connectLocks } from './worker/lock-service.mjs';
import { runTogether } from './worker/worker-process.mjs';

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

/** How many bodies began, in whatever process, while one that writes ran, or began to write while another one ran. */
function countMixed(stays) {
  let violations = 0;
  let lastLeft = 0;
  let lastWriteLeft = 0;
  for (const { writes, entered, left } of stays.toSorted((one, other) => one.entered - other.entered)) {
    if ((writes ? lastLeft : lastWriteLeft) > entered) violations += 1;
    lastLeft = Math.max(lastLeft, left);
    if (writes) lastWriteLeft = Math.max(lastWriteLeft, left);
  }
  return violations;
}

const WARM_UP_CYCLES = 300;
const OPTIONS = { wait: '60s' };
const READ = { ...OPTIONS, mode: 'read' };

/** Callers of one key: `readers` of them take it to read, `writers` to write, each for `hold` ms. */
export async function prepare({ port, readers: reading, writers, hold, ms }) {
  const locks = await connectLocks(port);
  for (let cycle = 0; cycle < WARM_UP_CYCLES; cycle++) {
    const options = cycle % 2 === 0 ? READ : OPTIONS;
    await locks.withLock(`warm-up:${process.pid}`, options, async () => {});
  }
  return async () => {
    const stays = [];
    const waits = { read: new WaitRecorder(), write: new WaitRecorder() };
    const began = microseconds();
    const end = began + ms * 1_000;
    const call = async (mode) => {
      while (microseconds() < end) {
        const asked = microseconds();
        await locks.withLock('hot', mode === 'read' ? READ : OPTIONS, async () => {
          const entered = microseconds();
          waits[mode].record(entered - asked);
          await sleep(hold);
          stays.push({ writes: mode === 'write', entered, left: microseconds() });
        });
      }
    };
    const callers = [...Array(reading).fill('read'), ...Array(writers).fill('write')];
    await Promise.all(callers.map(call));
    const elapsed = (microseconds() - began) / 1_000;
    return { elapsed, stays, waits: { read: waits.read.encoded(), write: waits.write.encoded() } };
  };
}
