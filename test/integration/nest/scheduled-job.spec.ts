import { startRedisServer } from '../../support/servers/redis-server.js';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';

/** Machines whose clocks differ run jobs that are over before the next one looks (docs/guide/scheduled-jobs.md). */

const SHIFTS = [-750, 0, 750];
/** Seconds. */
const PERIOD = 4;
/** Above the difference of the clocks and the lateness of timers, below the period. */
const AT_LEAST_FOR = 3_000;
const TICKS = 2;
const JOBS = 10;

/** The ticks that a machine printed behind `word`. */
function ticksOf({ output }: Child, word: 'looked' | 'ran'): number[] {
  const lines = output.split('\n').filter((line) => line.startsWith(`${word} `));
  return lines.map((line) => Number(line.split(' ')[1]));
}

it('runs each job once for each tick', async () => {
  const server = await startRedisServer();
  const machines = SHIFTS.map((shift) =>
    Child.start('scheduled-job.mjs', [server.port, shift, PERIOD, AT_LEAST_FOR, JOBS].map(String)),
  );
  try {
    for (const machine of machines) await machine.says('ready', 30_000);
    /** Those at which each machine looked. */
    const ticks = () => {
      const [first = [], ...others] = machines.map((machine) => ticksOf(machine, 'looked'));
      return first.filter((tick) => others.every((other) => other.includes(tick)));
    };
    await eventually(() => ticks().length >= TICKS, { within: 30_000 });
    const runs = machines.flatMap((machine) => ticksOf(machine, 'ran'));
    for (const tick of ticks()) expect(runs.filter((run) => run === tick)).toEqual(Array(JOBS).fill(tick));
  } finally {
    await Promise.all(machines.map((machine) => machine.kill()));
    await server.stop();
  }
}, 60_000);
