// Builds what is out of date: node tools/build.mjs [lib|simulation]. Default: the library and the sample application.
import { spawn } from 'node:child_process';
import { readdirSync, rmSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { takeTurn } from './build-turn.mjs';

const ROOT = new URL('../', import.meta.url);
const BUILDERS = ['build-lib', 'entries', 'import-entries', 'notices'].map((name) => `tools/${name}.mjs`);
const SETTINGS = ['package.json', 'package-lock.json', 'tsconfig.json'];

/** Each with what it is made from, and the file that its build writes last. */
const LIB = [
  {
    script: 'build:lib',
    from: ['lib', 'tsconfig.build.json', ...BUILDERS, ...SETTINGS],
    last: 'dist/cjs/package.json',
  },
];
const PARTS = [
  ...LIB,
  {
    script: 'build:sample-app',
    from: ['sample-app', ...SETTINGS],
    last: 'dist-sample/built',
  },
];
/** Not with the others: only the simulation needs it. */
const SIMULATION = [
  {
    script: 'build:simulation',
    from: ['lib', 'test/simulation', ...SETTINGS],
    last: 'dist-simulation/built',
  },
];

/** Names the process that builds, so that two that start at once do not delete each other's files. */
const BUILDING = new URL('node_modules/.nest-redis-lock-building', ROOT);

const isProgram = process.argv[1] === fileURLToPath(import.meta.url);
if (isProgram) await buildWhatIsOutOfDate({ lib: LIB, simulation: SIMULATION }[process.argv[2]] ?? PARTS);

export async function buildWhatIsOutOfDate(parts = PARTS) {
  if (outOfDate(parts).length === 0) return;
  await takeTurn(BUILDING);
  try {
    const outdated = outOfDate(parts);
    if (outdated.length > 0) console.error('Building, because sources have changed: half a minute or so');
    for (const { script } of outdated) await npmRun(script);
  } finally {
    rmSync(BUILDING, { force: true });
  }
}

function outOfDate(parts) {
  return parts.filter(({ from, last }) => {
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
