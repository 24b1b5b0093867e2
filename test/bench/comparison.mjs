// Whether this checkout is slower than another one: both are measured in turn, on one Redis server.
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Command } from 'commander';
import { startRedisServer } from '../../dist-sample/servers/redis-server.js';
import { median } from './figures.mjs';
import { whole } from './options.mjs';
import { RedisControl } from './redis-control.mjs';
import { terminalTable } from './report.mjs';

/** The rows of ours in each benchmark. */
const BENCHMARKS = [
  { file: 'scenarios.mjs', rows: ['ours'] },
  { file: 'cache/scenarios.mjs', rows: ['ours-l2', 'ours-l1l2', 'ours-l1l2-ref'] },
];

/** The scenarios of a checkout in which ours is measured, by title and row. */
async function comparable(folder, only = ['']) {
  const found = new Map();
  for (const { file, rows } of BENCHMARKS) {
    const { SCENARIOS } = await import(new URL(file, folder).href);
    for (const scenario of SCENARIOS) {
      if (!only.some((text) => scenario.title.includes(text))) continue;
      for (const row of scenario.rowsFor(rows)) {
        if (rows.includes(row)) found.set(`${scenario.title}: ${row}`, { scenario, row });
      }
    }
  }
  return found;
}

/**
 * The ratios (after / before) of neighbouring slices. The one that goes first changes from pair to pair, so that a
 * machine that becomes slower or faster favours none. No ratios where the scenario measures no rate.
 */
async function compare(before, after, context) {
  const sides = [await opened(before, context), await opened(after, context)];
  const ratios = [];
  try {
    for (let round = 0; round < context.rounds; round++) {
      const rates = [0, 0];
      for (const side of round % 2 === 0 ? [0, 1] : [1, 0]) rates[side] = await sides[side].rate();
      if (rates.includes(undefined)) return [];
      ratios.push(rates[1] / rates[0]);
    }
  } finally {
    await Promise.all(sides.map((side) => side.end()));
  }
  return ratios;
}

async function opened({ scenario, row }, context) {
  const held = await scenario.open?.(row, context);
  return {
    async rate() {
      if (!held) await context.control.empty();
      const { cyclesPerSecond, rate, violations = 0 } = await scenario.round(row, { ...context, opened: held });
      if (violations > 0) throw new Error(`${scenario.title}: ${violations} violations`);
      return cyclesPerSecond ?? rate;
    },
    end: async () => held?.end(),
  };
}

function comparisonTable(results, { ms, rounds }) {
  const measured = results.filter(({ ratios }) => ratios.length > 0);
  return {
    title: 'This checkout and the other one',
    note: `Rate here / rate there, of ${rounds} pairs of neighbouring slices of ${ms} ms.`,
    columns: ['', 'median', 'lower quartile', 'upper quartile'],
    rows: measured.map(({ title, ratios }) => {
      const sorted = ratios.toSorted((a, b) => a - b);
      const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
      return [title, median(ratios), at(0.25), at(0.75)].map((cell) =>
        typeof cell === 'number' ? cell.toFixed(3) : cell,
      );
    }),
    notes: [],
  };
}

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
const here = await comparable(new URL('./', import.meta.url), only);
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
