// Whether this checkout is slower than another one: both are measured in turn, on one Redis server.
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Command } from 'commander';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { whole } from '../options.mjs';
import { RedisControl } from '../redis-control.mjs';
import { terminalTable } from '../report/terminal.mjs';
import { comparable, compare, comparisonTable } from './comparison.mjs';

const command = new Command('npm run bench:compare --')
  .description('Measures this checkout and another one, in turn, and prints the ratios of their rates')
  .argument('<folder>', 'the other checkout, with its packages installed and built (npm ci && npm run build)')
  .option('--ms <number>', 'how long a slice takes', whole(100, 600_000), 1_000)
  .option('--rounds <number>', 'slices of each checkout in each scenario', whole(2, 1_000), 15)
  .option('--only <text|text>', 'only scenarios whose title has one of these texts in it', (value) => value.split('|'))
  .showHelpAfterError('(--help shows the options)')
  .parse();

const [folder] = command.processedArgs;
const { ms, rounds, only } = command.opts();
const here = await comparable(new URL('..', import.meta.url), only);
const there = await comparable(pathToFileURL(`${resolve(folder)}/test/bench/`), only);
const server = await startRedisServer();
const control = new RedisControl(server.port);
try {
  const context = {
    port: server.port,
    control,
    directory: resolve('.'),
    ms,
    rounds,
    signal: new AbortController().signal,
  };
  const results = [];
  for (const [title, after] of here) {
    const before = there.get(title);
    if (!before) continue;
    console.error(title);
    results.push({ title, ratios: await compare(before, after, context) });
  }
  console.log(terminalTable(comparisonTable(results, { ms, rounds }), process.stdout.isTTY));
} finally {
  control.close();
  await server.stop();
}
