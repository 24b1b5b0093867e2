import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';
import { isRunning } from '../../support/is-running.js';

const prefixOf = (pid: number) => `nest-redis-lock-${hostname().slice(0, 20)}-${pid}-`;
const foldersOf = (pid: number) => readdirSync(tmpdir()).filter((name) => name.startsWith(prefixOf(pid)));

it.each(['SIGINT', 'SIGTERM', 'SIGKILL'] as const)(
  'nothing is left of servers and their folders after %s',
  async (signal) => {
    const child = Child.start('starts-servers.mjs');
    const servers = await child.says<number[]>('started', 60_000);
    expect(foldersOf(child.pid).length).toBeGreaterThanOrEqual(2);
    child.signal(signal);
    await child.exited;
    await eventually(() => !servers.some(isRunning) && foldersOf(child.pid).length === 0, { within: 20_000 });
  },
  120_000,
);

it('removes the folder of a process that ended without removing it, and keeps that of one that runs', async () => {
  const { pid } = spawnSync('true');
  const [abandoned, used] = [pid, process.pid].map((owner) => join(tmpdir(), `${prefixOf(owner)}test`)) as [
    string,
    string,
  ];
  for (const folder of [abandoned, used]) mkdirSync(join(folder, 'data'), { recursive: true });
  const child = Child.start('starts-servers.mjs');
  await eventually(() => !existsSync(abandoned), { within: 20_000 });
  expect(existsSync(used)).toBe(true);
  await child.kill();
  await eventually(() => foldersOf(child.pid).length === 0, { within: 20_000 });
});
