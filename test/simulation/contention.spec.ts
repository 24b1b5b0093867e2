import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** How long (ms) a busy machine may take for what is seconds of processor time. */
const PATIENCE = 300_000;

interface Figures {
  readonly used: number;
  readonly p99: number;
  readonly rounds: number;
  readonly jain: number;
  readonly commands: number;
}

/** Bodies of 5 ms, on a network where a hand-over takes 0.65 ms on average. All times are simulated. */
async function contend(processes: number, callers: number): Promise<Figures> {
  const options = ['--processes', processes, '--callers', callers, '--hold', 5].map(String);
  const { stdout } = await promisify(execFile)('npm', ['run', '--silent', 'simulate:contention', '--', ...options]);
  return JSON.parse(stdout) as Figures;
}

it.each([
  [4, 10],
  [40, 2],
])(
  'serves %i processes of %i callers alike, each within little more than one round of all',
  async (processes, callers) => {
    const { rounds, jain, used, commands } = await contend(processes, callers);
    expect(rounds).toBeLessThan(1.3);
    expect(jain).toBeGreaterThan(0.98);
    expect(used).toBeGreaterThan(0.93);
    expect(commands).toBeLessThan(1.5);
  },
  PATIENCE,
);

it(
  'shares the time among many processes of one caller each, and hands the name over less often than it passes it on',
  async () => {
    const { p99, jain, used } = await contend(10, 1);
    expect(p99).toBeLessThan(300);
    expect(jain).toBeGreaterThan(0.98);
    expect(used).toBeGreaterThan(0.96);
  },
  PATIENCE,
);
