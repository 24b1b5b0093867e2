import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { madeProgram } from './child.js';

const PROGRAM = madeProgram('dist-sample/demo/main.js');
const run = promisify(execFile);

/** What the sale with one strategy came to. */
export interface Sale {
  readonly strategy: string;
  readonly accepted: number;
}

/** Sells 40 pieces to 120 orders with the strategies that lock, whose locks are in this store. */
export async function sellWithLocksIn(backend: string): Promise<readonly Sale[]> {
  const load = [
    '--stock',
    '40',
    '--orders',
    '120',
    '--concurrency',
    '30',
    '--instances',
    '2',
    '--no-cache-reads',
    '--no-primitives',
    '--json',
  ];
  const args = ['--strategy', 'lock,fenced', '--backend', backend, ...load];
  const { stdout } = await run(process.execPath, [PROGRAM, ...args], { timeout: 110_000 });
  const { results } = JSON.parse(stdout) as { results: Sale[] };
  return results;
}
