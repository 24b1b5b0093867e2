import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { isRunning } from '../support/is-running.js';
import { startPostgresServer } from '../support/servers/postgres-server.js';
import { ServerProcess } from '../support/servers/server-process.js';

it.each(['kernel', 'watcher'])('a server ends with us when we are killed (%s)', async (guard) => {
  const child = Child.start('guarded-server.mjs', [guard]);
  const pid = await child.says<number>('started');
  expect(isRunning(pid)).toBe(true);
  await child.kill();
  await eventually(() => !isRunning(pid));
});

it('a server that ends before it is ready is reported with its output', async () => {
  const starting = ServerProcess.start({
    command: 'sh',
    args: ['-c', 'echo no configuration >&2; exit 3'],
    ready: () => Promise.reject(new Error('not yet')),
  });
  await expect(starting).rejects.toThrow(/ended before it was ready:\s+no configuration/);
});

it('a server that is never ready is stopped', async () => {
  let pid = 0;
  const starting = ServerProcess.start({
    command: 'sleep',
    args: ['600'],
    timeout: 100,
    ready: async (server) => {
      pid = server.pid;
      throw new Error('not yet');
    },
  });
  await expect(starting).rejects.toThrow(/not ready within 100 ms: Error: not yet/);
  expect(isRunning(pid)).toBe(false);
});

it('a PostgreSQL whose processes stand still leaves none of them behind', async () => {
  const server = await startPostgresServer();
  const all = [server.process.pid, ...childrenOf(server.process.pid)];
  expect(all.length).toBeGreaterThan(3);
  for (const pid of all) stopProcess(pid);
  await server.stop();
  expect(all.filter(isRunning)).toEqual([]);
});

/** Some of them end by themselves, such as those that clean up. */
function stopProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGSTOP');
  } catch (error) {
    expect(error).toMatchObject({ code: 'ESRCH' });
  }
}

/** `undefined` where the process has ended. */
function parentOf(pid: number): number | undefined {
  try {
    return Number(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch (error) {
    expect(['ENOENT', 'ESRCH']).toContain((error as NodeJS.ErrnoException).code);
    return undefined;
  }
}

/** Linux only. */
function childrenOf(parent: number): number[] {
  const pids = readdirSync('/proc').map(Number).filter(Boolean);
  return pids.filter((pid) => isRunning(pid) && parentOf(pid) === parent);
}

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
