import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { startRedisServer } from '../support/servers/redis-server.js';
import { clockAhead } from '../support/servers/shifted-clock.js';

/** Machines whose clocks differ run jobs that are over before the next one looks (docs/guide/scheduled-jobs.md). */

/** Seconds. */
const CLOCKS_AHEAD = [-2, 0, 2];
/** Seconds. */
const PERIOD = 6;
/** Above the difference of the clocks and the lateness of timers, below the period. */
const AT_LEAST_FOR = 5_000;
const TICKS = 2;
const JOBS = 100;

/** The ticks that a machine printed behind `word`. */
function ticksOf({ output }: Child, word: 'looked' | 'ran'): number[] {
  const lines = output.split('\n').filter((line) => line.startsWith(`${word} `));
  return lines.map((line) => Number(line.split(' ')[1]));
}

it('runs each job once for each tick', async () => {
  const server = await startRedisServer();
  const machines = CLOCKS_AHEAD.map((seconds) =>
    Child.start('scheduled-job.mjs', [server.port, PERIOD, AT_LEAST_FOR, JOBS].map(String), clockAhead(seconds)),
  );
  try {
    for (const machine of machines) await machine.says('ready', 30_000);
    /** Those at which each machine looked. */
    const ticks = () => {
      const [first = [], ...others] = machines.map((machine) => ticksOf(machine, 'looked'));
      return first.filter((tick) => others.every((other) => other.includes(tick)));
    };
    await eventually(() => ticks().length >= TICKS, { within: 60_000 });
    const runs = machines.flatMap((machine) => ticksOf(machine, 'ran'));
    for (const tick of ticks()) expect(runs.filter((run) => run === tick)).toEqual(Array(JOBS).fill(tick));
  } finally {
    await Promise.all(machines.map((machine) => machine.kill()));
    await server.stop();
  }
}, 120_000);
