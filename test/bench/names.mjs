import { setTimeout as sleep } from 'node:timers/promises';
import { median, microseconds, settledMemory, waitPercentiles, WaitRecorder } from './figures.mjs';
import { queueAtHeldNames } from './memory.mjs';
import { rounded } from './report.mjs';
import { connectLocks } from './worker/lock-service.mjs';
import { runTogether } from './worker/worker-process.mjs';

const PATIENCE = 300_000;
const CALLERS = 100;
/** Fewer cycles would show the compiler of V8 rather than the code. */
const WARM_UP_CYCLES = 50_000;
const FREE_CYCLES = 100_000;
/** Until each ticket has sent its second heartbeat, in ms. */
const SETTLING = 40_000;

/**
 * What a cycle of a free lock costs one instance of ours, and Redis, beside how many other names: it has used them
 * before, or waits for them. The rows stand for their number.
 */
export function names({ title, note, used, waited }) {
  const rows = Object.fromEntries([
    ...used.map((count) => [`${count.toLocaleString('en-US')} names, one after another`, { used: count, waited: 0 }]),
    ...waited.map((count) => [`waiting for ${count.toLocaleString('en-US')} names`, { used: 0, waited: count }]),
  ]);
  return {
    title,
    note,
    rowsFor: (peers) => (peers.includes('ours') ? Object.keys(rows) : []),
    async round(row, { port, control }) {
      const settings = [{ port, ...rows[row] }];
      const onPrepared = () => control.reset();
      const [figures] = await runTogether({
        job: 'names',
        settings,
        execArgv: ['--expose-gc'],
        patience: PATIENCE,
        onPrepared,
      });
      const { cpu } = await control.statistics();
      return { ...figures, redis: cpu / figures.cycles };
    },
    table: (results) => ({
      columns: ['', 'cycles/s', 'process µs/cycle', 'Redis µs/cycle', 'p99 ms', 'heap bytes/name'],
      rows: results.map(({ name, rounds }) => [name, ...(rounds.length > 0 ? cells(rounds) : [])]),
      notes: [],
    }),
  };
}

function cells(rounds) {
  return ['rate', 'cpu', 'redis', 'p99', 'heap'].map((figure) => rounded(median(rounds.map((round) => round[figure]))));
}

/** Answers what takes each name once, or a free one beside those that are waited for. */
export async function prepare({ port, used, waited }) {
  const locks = await connectLocks(port);
  await cycles(locks, WARM_UP_CYCLES, (cycle) => `warm-up:${cycle % 1_000}`);
  const waits = await queueAtHeldNames(locks, port, waited);
  if (waited > 0) await sleep(SETTLING);
  return async () => {
    const before = await settledMemory();
    const cpu = process.cpuUsage();
    const start = performance.now();
    const count = used === 0 ? FREE_CYCLES : used;
    const { p99 } = await cycles(locks, count, (cycle) => `free:${cycle}`);
    const seconds = (performance.now() - start) / 1_000;
    const { user, system } = process.cpuUsage(cpu);
    const after = await settledMemory();
    return {
      cycles: count,
      rate: count / seconds,
      cpu: (user + system) / count,
      p99,
      // What is kept of names that are used no more, and `waits`, which must live until here.
      heap: waits.length > 0 ? NaN : (after.heap - before.heap) / count,
    };
  };
}

/** Takes a free lock `count` times, by callers side by side. Answers percentiles of the time of a cycle, in ms. */
async function cycles(locks, count, nameOf) {
  const recorder = new WaitRecorder();
  let next = 0;
  const caller = async () => {
    while (next < count) {
      const cycle = next++;
      const start = microseconds();
      await locks.withLock(nameOf(cycle), async () => {});
      recorder.record(microseconds() - start);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  return waitPercentiles([recorder.encoded()]);
}
