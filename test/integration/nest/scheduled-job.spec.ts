import { startRedisServer } from '../../support/servers/redis-server.js';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';

/** Machines whose clocks differ run a job that is over before the next one looks (docs/guide/scheduled-jobs.md). */

const SHIFTS = [0, 60, 150];
/** Seconds. */
const PERIOD = 2;
/** Above the difference of the clocks and the lateness of timers, below the period. */
const MIN_HOLD = '1300ms';
const TICKS = 3;

/** The ticks that a machine told of with `word`. */
function told({ output }: Child, word: 'tick' | 'ran'): number[] {
  const lines = output.split('\n').filter((line) => line.startsWith(`${word} `));
  return lines.map((line) => Number(line.slice(word.length)));
}

it('runs once for each tick with minHold', async () => {
  const server = await startRedisServer();
  const machines = SHIFTS.map((shift) =>
    Child.start('scheduled-job.mjs', [String(server.port), String(shift), String(PERIOD), MIN_HOLD]),
  );
  try {
    for (const machine of machines) await machine.says('ready', 30_000);
    /** Those at which each machine looked, and after which it looked again. */
    const ticks = () => {
      const [first = [], ...others] = machines.map((machine) => told(machine, 'tick').slice(0, -1));
      return first.filter((tick) => others.every((other) => other.includes(tick)));
    };
    await eventually(() => ticks().length >= TICKS, { within: 30_000 });
    const runs = machines.flatMap((machine) => told(machine, 'ran'));
    for (const tick of ticks()) expect(runs.filter((run) => run === tick)).toEqual([tick]);
  } finally {
    await Promise.all(machines.map((machine) => machine.kill()));
    await server.stop();
  }
}, 60_000);
