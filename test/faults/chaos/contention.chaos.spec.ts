import { runContention, summary } from './contention.js';

const DEFAULT_SEED = 20_260;

const seed = Number(process.env['CHAOS_SEED'] ?? DEFAULT_SEED);

it('never lets two hold a lock at once, and no caller waits for ever', async () => {
  const report = await runContention({ seed, cycles: 500, duration: 6_000 });
  if (report.findingsInAll > 0) throw new Error(`CHAOS_SEED=${seed}\n${summary(report)}`);
}, 150_000);

it('never lets a writer in beside readers, and no writer waits for ever, where most of the holds read', async () => {
  const report = await runContention({ seed, cycles: 500, duration: 6_000, reads: 80 });
  if (report.findingsInAll > 0) throw new Error(`CHAOS_SEED=${seed}\n${summary(report)}`);
  expect(report.reads).toBeGreaterThan(report.cycles / 2);
  expect(report.cycles).toBeGreaterThan(report.reads);
}, 150_000);
