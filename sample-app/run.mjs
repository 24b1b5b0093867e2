// Runs a program of dist-sample in this process, and builds first what is out of date. Without a shell in between,
// which would not pass signals on: node sample-app/run.mjs main.js
import { spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const ROOT = new URL('../', import.meta.url);
const SETTINGS = ['package.json', 'nest-cli.json', 'tsconfig.json'];

/** Each with what it is made from, and the file that its build writes last. */
const PARTS = [
  {
    script: 'build:lib',
    from: ['lib', 'tsconfig.build.json', 'tsconfig.cjs.json', ...SETTINGS],
    last: 'dist/cjs/package.json',
  },
  {
    script: 'build:sample-app',
    from: ['sample-app/src', 'sample-app/tsconfig.json', ...SETTINGS],
    last: 'dist-sample/demo/html-report/browser/charts.js',
  },
];

/** Names the process that builds, so that two that start at once do not delete each other's files. */
const BUILDING = new URL('node_modules/.nest-redis-lock-building', ROOT);

const [program, ...args] = process.argv.slice(2);
if (outOfDate().length > 0) await build();
process.argv = [process.argv[0], fileURLToPath(new URL(`dist-sample/${program}`, ROOT)), ...args];
await import(new URL(`dist-sample/${program}`, ROOT).href);

function outOfDate() {
  return PARTS.filter(({ from, last }) => {
    const built = changedAt(new URL(last, ROOT));
    return built === undefined || from.some((path) => newest(new URL(path, ROOT)) > built);
  });
}

function changedAt(file) {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs;
}

/** When anything in this folder changed last; a file that was removed changes its folder. */
function newest(path) {
  const at = changedAt(path) ?? 0;
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) return at;
  return readdirSync(path).reduce((latest, name) => Math.max(latest, newest(new URL(`${path.href}/${name}`))), at);
}

async function build() {
  await takeTurn();
  try {
    const parts = outOfDate();
    if (parts.length > 0) console.error('Building, because sources have changed: half a minute or so');
    for (const { script } of parts) await npmRun(script);
  } finally {
    rmSync(BUILDING, { force: true });
  }
}

/** Waits while another process builds. One that died is passed over. */
async function takeTurn() {
  for (let told = false; ; told = true) {
    try {
      const file = openSync(BUILDING, 'wx');
      writeFileSync(file, String(process.pid));
      closeSync(file);
      return;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    const builder = builderNow();
    if (builder === undefined) rmSync(BUILDING, { force: true });
    else if (!told) console.error(`Waiting while process ${builder} builds`);
    await sleep(200);
  }
}

function builderNow() {
  try {
    const builder = Number(readFileSync(BUILDING, 'utf8'));
    // Empty for a moment, until its process has written its number.
    if (builder > 0) process.kill(builder, 0);
    return builder;
  } catch (error) {
    return error.code === 'EPERM' ? 0 : undefined;
  }
}

/** Its own group of processes, which ends with us. */
function npmRun(script) {
  const detached = process.platform !== 'win32';
  const child = spawn('npm', ['run', '--silent', script], {
    cwd: ROOT,
    stdio: ['ignore', 2, 2],
    detached,
    shell: !detached,
  });
  const end = (signal) => {
    if (detached && child.pid !== undefined) process.kill(-child.pid, signal);
    rmSync(BUILDING, { force: true });
    process.exit(signal === 'SIGINT' ? 130 : 143);
  };
  process.once('SIGINT', end).once('SIGTERM', end);
  return new Promise((resolve) =>
    child.once('exit', (code) => {
      process.off('SIGINT', end).off('SIGTERM', end);
      if (code === 0) return resolve();
      rmSync(BUILDING, { force: true });
      console.error(`npm run ${script} failed`);
      process.exit(1);
    }),
  );
}
