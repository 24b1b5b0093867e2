import { execFile, spawn } from 'node:child_process';
import { promisify } from 'node:util';
import { eventually } from '../support/eventually.js';
import { isRunning } from '../support/is-running.js';

const PROGRAM = new URL('../../dist-sample/demo/main.js', import.meta.url).pathname;
const run = promisify(execFile);

interface DemoResult {
  settings: object;
  verdict: string;
  results: { strategy: string; accepted: number; stockLeft: number; oversoldBy: number; invariants: object }[];
}

/** The processes below `pid`, by what Linux says of them. */
async function descendants(pid: number): Promise<number[]> {
  const { stdout } = await run('ps', ['-eo', 'pid=,ppid=']);
  const pairs = stdout
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number)) as [number, number][];
  const below = (parent: number): number[] =>
    pairs.filter(([, ppid]) => ppid === parent).flatMap(([child]) => [child, ...below(child)]);
  return below(pid);
}

it('shows that the lock sells what is there and nothing sells more', async () => {
  const args = ['--strategy', 'none,lock', '--stock', '40', '--orders', '151', '--concurrency', '50', '--json'];
  const { stdout } = await run(process.execPath, [PROGRAM, ...args], { timeout: 60_000 });
  expect(stdout.trim().split('\n')).toHaveLength(1);
  const { settings, results, verdict } = JSON.parse(stdout) as DemoResult;
  expect(settings).toMatchObject({ instances: 3, stock: 40, orders: 151, strategies: ['none', 'lock'] });
  const [none, lock] = results as [DemoResult['results'][0], DemoResult['results'][0]];
  expect(lock).toMatchObject({
    accepted: 40,
    stockLeft: 0,
    oversoldBy: 0,
    invariants: { I1: true, I2: true, I3: true },
  });
  expect(none.invariants).not.toEqual({ I1: true, I2: true, I3: true });
  expect(none.oversoldBy).toBeGreaterThan(0);
  expect(verdict).toMatch(/sold \d+ of 40 pieces.*; lock sold what was there/);
}, 90_000);

it.each([
  [['--strategy', 'hope'], /"hope" is not one of none, lock/],
  [['--orders', '0'], /whole number from 1/],
  [['--stock', '1e3'], /whole number from 0/],
  [['--colour'], /unknown option '--colour'/],
])('says what is wrong with %j', async (args, message) => {
  const failed = await run(process.execPath, [PROGRAM, ...args]).catch((error: unknown) => error);
  expect(failed).toMatchObject({ code: 2, stderr: expect.stringMatching(message) });
});

it.each([
  ['SIGINT', 130],
  ['SIGKILL', null],
] as const)(
  'leaves nothing running after %s',
  async (signal, status) => {
    const demo = spawn(process.execPath, [PROGRAM, '--strategy', 'lock', '--orders', '100000'], { stdio: 'ignore' });
    const exited = new Promise((resolve) => demo.once('exit', resolve));
    const below = await eventually(
      async () => {
        const pids = await descendants(demo.pid as number);
        return pids.length >= 5 ? pids : undefined;
      },
      { within: 30_000, every: 100 },
    );
    demo.kill(signal);
    expect(await exited).toBe(status);
    await eventually(() => !below.some(isRunning), { within: 10_000 });
  },
  60_000,
);
