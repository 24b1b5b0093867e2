import { runDuplicates } from './duplicates.js';

/** By hand: `CHAOS_ANSWERS=100000 npm test -- duplicates`, with `CHAOS_SEED` to repeat a run. */
const ANSWERS = Number(process.env['CHAOS_ANSWERS'] ?? 1_000);
const SEED = Number(process.env['CHAOS_SEED'] ?? 20_261);

it(
  'never runs an idempotent method twice at once or after an answer, and gives equal answers',
  async () => {
    const report = await runDuplicates(SEED, ANSWERS);
    if (process.env['CHAOS_ANSWERS']) console.log(report);
    expect(report).toMatchObject({ seed: SEED, findings: [] });
    expect(report.tally['answers']).toBeGreaterThanOrEqual(ANSWERS);
  },
  150_000 + ANSWERS * 30,
);
