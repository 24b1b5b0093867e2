import { execFile } from 'node:child_process';
import { jest } from '@jest/globals';

/** Milliseconds: the schedules take a core each, of a machine that may have others to run. */
jest.setTimeout(1_800_000);

/** Runs a script of package.json; resolves to its exit code and what it printed. */
function npmRun(script: string, ...args: string[]): Promise<{ readonly code: number; readonly output: string }> {
  return new Promise((resolve) => {
    const child = execFile('npm', ['run', '--silent', script, '--', ...args], (_error, output, errors) =>
      resolve({ code: child.exitCode ?? -1, output: output + errors }),
    );
  });
}

/** How long (ms) a busy machine may take for what is seconds of processor time. */
const PATIENCE = 900_000;

it(
  'finds no schedule in which the library breaks a rule',
  async () => {
    const { code, output } = await npmRun('simulate', '--seeds', '300');
    expect(output).toMatch(/^300 schedules from seed 1, .*; violations: none$/m);
    expect(code).toBe(0);
  },
  PATIENCE,
);

it(
  'gives one seed one trace',
  async () => {
    const { code, output } = await npmRun('simulate', '--seeds', '20', '--twice');
    expect(output).not.toContain('two traces');
    expect(code).toBe(0);
  },
  PATIENCE,
);

it(
  'finds a rule that is broken',
  async () => {
    const { code, output } = await npmRun('simulate:mutations', '--only', 'R7', '--seeds', '300');
    expect(output).toMatch(/^found {3}R7 .*(EXCLUSION|OWNED)/m);
    expect(code).toBe(0);
  },
  PATIENCE,
);
