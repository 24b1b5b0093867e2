import { execFile, spawn } from 'node:child_process';
import { statSync, utimesSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { descendants } from '../support/descendants.js';
import { eventually } from '../support/eventually.js';
import { isRunning } from '../support/is-running.js';
import { startShopServers } from '../support/shop.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

it('npm start ends with its shop at SIGTERM', async () => {
  const { redis, postgres, stop } = await startShopServers();
  const npm = spawn('npm', ['start'], {
    cwd: ROOT,
    env: { ...process.env, PORT: '0', REDIS_URL: redis.url, DATABASE_URL: postgres.url },
  });
  let output = '';
  npm.stdout.on('data', (data: Buffer) => (output += data.toString()));
  const ended = new Promise((resolve) => npm.once('exit', resolve));
  await eventually(() => output.includes('shop listening'), { within: 120_000, every: 50 });
  const below = await descendants(npm.pid as number);
  expect(below.length).toBeGreaterThan(0);
  npm.kill('SIGTERM');
  await ended;
  await eventually(() => !below.some(isRunning), { within: 10_000 });
  await stop();
}, 240_000);

it('does not build again what is up to date', async () => {
  const last = `${ROOT}/dist-sample/built`;
  const now = new Date();
  for (const built of [last, `${ROOT}/dist/cjs/package.json`]) utimesSync(built, now, now);
  const { ino, mtimeMs } = statSync(last);
  const { stderr } = await promisify(execFile)('npm', ['run', '--silent', 'demo', '--', '--help'], { cwd: ROOT });
  expect(stderr).not.toContain('Building');
  expect(statSync(last)).toMatchObject({ ino, mtimeMs });
}, 240_000);
