import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { madeProgram } from './child.js';

const PROGRAM = madeProgram('dist-sample/demo/main.js');
const run = promisify(execFile);

/** What a fault did to the orders for one product. */
export interface FaultOutcome {
  readonly nextSale: number | null;
  readonly soldTwice: number;
  readonly struck: string;
}

/** What the demo measured of one scheme. */
export interface ComparedScheme {
  readonly sale: { readonly accepted: number; readonly oversoldBy: number };
  readonly killed: FaultOutcome;
  readonly frozen: FaultOutcome;
  readonly restarted: FaultOutcome;
}

/** Runs `npm run demo -- --compare` with these schemes, which it answers in the order of its table. */
export async function compareSchemes(...names: string[]): Promise<readonly ComparedScheme[]> {
  // It refuses servers that it may not restart.
  const env = { ...process.env, REDIS_URL: '', DATABASE_URL: '' };
  const args = [PROGRAM, '--compare', names.join(','), '--json'];
  const { stdout } = await run(process.execPath, args, { env, timeout: 280_000 });
  const { comparison } = JSON.parse(stdout) as { comparison: ComparedScheme[] };
  return comparison;
}
