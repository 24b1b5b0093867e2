import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { median } from './figures.mjs';
import { rounded } from './report.mjs';
import { connectLocks } from './worker/lock-service.mjs';
import { runTogether } from './worker/worker-process.mjs';

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

/** Taken side by side, so that no request waits long for its answer. */
const BATCH = 500;
const WARM_UP_CYCLES = 2_000;

/** Takes the locks; answers what watches the event loop while the watchdog keeps them. */
export async function prepare({ port, locks: count, ttl, ms }) {
  const locks = await connectLocks(port);
  for (let cycle = 0; cycle < WARM_UP_CYCLES; cycle++) await locks.withLock(`warm-up:${cycle % 10}`, async () => {});
  const held = [];
  for (let first = 0; first < count; first += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - first) }, (_, index) => `held:${first + index}`);
    held.push(...(await Promise.all(batch.map((name) => locks.acquire(name, { ttl })))));
  }
  return async () => {
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    await sleep(ms);
    delay.disable();
    const milliseconds = (nanoseconds) => nanoseconds / 1e6;
    return {
      p50: milliseconds(delay.percentile(50)),
      p99: milliseconds(delay.percentile(99)),
      max: milliseconds(delay.max),
      lost: held.filter((lock) => !lock.held).length,
    };
  };
}
