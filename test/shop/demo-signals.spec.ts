import { readdirSync, rmSync } from 'node:fs';
import { Demo, newFolder } from './demo-run.js';
import { descendants } from '../support/descendants.js';
import { eventually } from '../support/eventually.js';
import { isRunning } from '../support/is-running.js';

let demo: Demo;
afterEach(async () => {
  // One that a failed test has left would disturb the next.
  demo.signal('SIGTERM');
  await demo.ended;
});

it.each([
  [130, 'SIGINT'],
  [130, 'SIGINT', 'SIGINT'],
  [null, 'SIGKILL'],
] as const)(
  'exits with %j, and leaves nothing running nor in the temporary folder, after %s %s',
  async (status: number | null, ...signals: (NodeJS.Signals | undefined)[]) => {
    const folder = newFolder();
    demo = new Demo(['--orders', '100000'], { TMPDIR: folder, REDIS_URL: '', DATABASE_URL: '' });
    await demo.shopsAre(3);
    const below = await descendants(demo.pid);
    expect(below.length).toBeGreaterThanOrEqual(5);
    expect(readdirSync(folder).length).toBeGreaterThan(0);
    for (const [index, signal] of signals.entries()) {
      if (signal === undefined) break;
      if (index > 0) await eventually(() => demo.output.includes('Cleaning up'));
      demo.signal(signal);
    }
    expect((await demo.ended).code).toBe(status);
    await eventually(() => readdirSync(folder).length === 0 && !below.some(isRunning));
    rmSync(folder, { recursive: true });
  },
  180_000,
);
