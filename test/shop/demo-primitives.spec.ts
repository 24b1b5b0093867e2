import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { PRIMITIVES } from '../../sample-app/demo/shop-facts.js';
import type { PrimitiveResult } from '../../sample-app/demo/verdict.js';
import { madeProgram } from '../support/child.js';

const PROGRAM = madeProgram('dist-sample/demo/main.js');
const run = promisify(execFile);

interface Ended {
  readonly code: number;
  readonly primitives: readonly PrimitiveResult[];
  readonly verdict: string;
}

/** Runs the demo with one order, and the primitives. */
async function tryPrimitives(...args: string[]): Promise<Ended> {
  const given = ['--strategy', 'atomic', '--orders', '1', '--stock', '1', '--no-cache-reads', '--json', ...args];
  const { code = 0, stdout } = await run(process.execPath, [PROGRAM, ...given], { timeout: 200_000 }).then(
    (ended): { code?: number; stdout: string } => ended,
    (failed: { code: number; stdout: string; stderr: string }) => {
      if (failed.stdout === '') throw new Error(failed.stderr);
      return failed;
    },
  );
  return { code, ...(JSON.parse(stdout) as Omit<Ended, 'code'>) };
}

it('counts what each primitive promises, also where the locks of the shop are in another store', async () => {
  const { code, primitives, verdict } = await tryPrimitives('--backend', 'postgres');
  expect(verdict).toMatch(/; once, rate-limit, semaphore, .* kept what they promise\.$/);
  expect(code).toBe(0);
  expect(new Set(primitives.map(({ primitive }) => primitive))).toEqual(new Set(PRIMITIVES));
  expect(primitives.flatMap(({ failures }) => failures)).toEqual([]);
}, 240_000);

it('fails for each primitive that the shop does without', async () => {
  const { code, primitives, verdict } = await tryPrimitives('--without', PRIMITIVES.join(','));
  expect(code).toBe(1);
  const broken = (message: string) => expect.arrayContaining([expect.stringMatching(message)]);
  for (const [primitive, message] of [
    ['once', /^\d+ runs of 20 orders$/],
    ['rate-limit', /^60 (orders of one customer, where \d+ are allowed|answers told the customer no limit)$/],
    ['semaphore', /^\d+ payments at once, where 5 are allowed$/],
    ['read-write-lock', /^\d+ of \d+ reads showed half of an import$/],
    ['scheduled-job', /^\d+ reports for \d+ ticks$/],
    ['leader-election', /^1 of 1 terms had restocks of several processes$/],
  ] as const) {
    expect(primitives).toContainEqual(expect.objectContaining({ primitive, failures: broken(message.source) }));
  }
  expect(verdict).toMatch(/^FAILED: once: .*; rate-limit: .*; semaphore: /);
}, 240_000);
