// The model of Redis against a real redis-server: npm run simulate:compare -- --calls 100000

import { Command } from 'commander';
import { compareCalls } from './compare-calls.js';

const { calls, seed, lag } = new Command('npm run simulate:compare --')
  .description('Sends random commands of the library and of others to a model of Redis and to a redis-server')
  .option('--calls <number>', 'how many commands', Number, 10_000)
  .option('--seed <number>', 'of the first sequence', Number, Math.floor(Math.random() * 2 ** 31))
  .option('--lag <ms>', 'the model expires strings too late, to see that this is noticed', Number, 0)
  .allowExcessArguments(false)
  .parse()
  .opts<{ calls: number; seed: number; lag: number }>();

const { commands, difference, failedAt } = await compareCalls({
  calls,
  seed,
  lag,
  report: (line) => console.log(line),
});
console.log(difference === undefined ? `SAME: ${commands} commands` : `DIFFERENT, seed ${failedAt}:\n${difference}`);
process.exitCode = difference === undefined ? 0 : 1;
