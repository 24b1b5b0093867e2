import { runContention } from './contention.js';
import { summary } from './summary.js';

const DEFAULT_SEED = 20_260;

it('never lets two hold a lock at once, and lets nobody wait for ever', async () => {
  const seed = Number(process.env['CHAOS_SEED'] ?? DEFAULT_SEED);
  const report = await runContention({ seed, cycles: 1_000, duration: 12_000 });
  if (report.findingsInAll > 0) throw new Error(`CHAOS_SEED=${seed}\n${summary(report)}`);
}, 150_000);
