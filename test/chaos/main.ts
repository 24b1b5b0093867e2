import { Command, InvalidArgumentError } from 'commander';
import { LONG_HOLDS, LONGEST_PAUSE, runContention } from './contention.js';
import type { Tally } from './evidence.js';
import { summary } from './summary.js';

const SEEDS = 2 ** 31 - 1;
const EVERY = 5_000;

const { cycles, seed, pause, longHolds } = new Command('npm run chaos --')
  .description('Has processes contend for a few locks while they are killed and stopped and their connections are cut')
  .option('--cycles <number>', 'locks to be taken and given back', whole, 100_000)
  .option('--seed <number>', 'what the mischief is drawn from (default: another one each time)', whole)
  .option('--pause <ms>', 'the longest peace between two bursts of mischief', whole, LONGEST_PAUSE)
  .option('--long-holds <number>', 'one hold in so many is long enough to be renewed', whole, LONG_HOLDS)
  .allowExcessArguments(false)
  .showHelpAfterError('(--help shows the options)')
  .parse()
  .opts<{ cycles: number; seed?: number; pause: number; longHolds: number }>();

let printed = performance.now();
const report = await runContention({
  cycles,
  pause,
  longHolds,
  seed: seed ?? Math.floor(Math.random() * SEEDS),
  onProgress,
});
console.log(summary(report));
process.exitCode = report.findingsInAll > 0 ? 1 : 0;

function onProgress(tally: Tally): void {
  if (performance.now() - printed < EVERY) return;
  printed = performance.now();
  console.error(`${tally.cycles} of ${cycles} cycles, ${tally.fencedOff} fenced off`);
}

function whole(value: string): number {
  if (/^\d+$/.test(value) && Number(value) <= SEEDS) return Number(value);
  throw new InvalidArgumentError(`Give a whole number up to ${SEEDS}.`);
}
