import { median } from '../median.mjs';

/** The rows of ours in each benchmark. */
const BENCHMARKS = [
  { file: 'scenarios.mjs', rows: ['ours'] },
  { file: 'cache/scenarios.mjs', rows: ['ours-l2', 'ours-l1l2', 'ours-l1l2-ref'] },
];

/** The scenarios of a checkout in which ours is measured, by title and row. */
export async function comparable(folder, only = ['']) {
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
export async function compare(before, after, context) {
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

export function comparisonTable(results, { ms, rounds }) {
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
