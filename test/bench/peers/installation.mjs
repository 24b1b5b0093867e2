import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { PEERS } from './catalogue.mjs';

const manifest = readFileSync(new URL('./packages.json', import.meta.url), 'utf8');
const pinned = JSON.parse(manifest);

/** Where the peers are installed unless told otherwise: kept from run to run, and another one for other versions. */
export const DEFAULT_DIRECTORY = join(
  tmpdir(),
  `${pinned.name}-${createHash('sha256').update(manifest).digest('hex').slice(0, 8)}`,
);

/** The packages that these peers need, installed there if they are not. A folder of another project is used as it is. */
export async function installPeers(names, folder, signal) {
  const directory = resolve(folder);
  const needed = names.some((name) => PEERS[name].packages.length > 0);
  if (needed && !isComplete(directory) && isOurs(directory)) {
    console.error(`Installing the peers into ${directory}`);
    await mkdir(directory, { recursive: true });
    await writeFile(join(directory, 'package.json'), manifest);
    const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error', '--prefix', directory];
    try {
      await promisify(execFile)('npm', ['install', ...flags], { cwd: directory, signal });
    } catch (error) {
      signal.throwIfAborted();
      console.error(`The peers could not be installed: ${error.stderr || error.message}`);
    }
  }
  return { directory, versionOf: (name, within) => versionOf(directory, name, within) };
}

function isOurs(directory) {
  const file = join(directory, 'package.json');
  return !existsSync(file) || JSON.parse(readFileSync(file, 'utf8')).name === pinned.name;
}

function isComplete(directory) {
  const packages = installedPackages(directory);
  return Object.entries(pinned.dependencies).every(
    ([name, version]) => packages[`node_modules/${name}`]?.version === version,
  );
}

function versionOf(directory, name, within) {
  const packages = installedPackages(directory);
  const found = packages[`node_modules/${within}/node_modules/${name}`] ?? packages[`node_modules/${name}`];
  return found?.version;
}

/** What npm writes when an installation is complete. */
function installedPackages(directory) {
  const file = join(directory, 'node_modules/.package-lock.json');
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')).packages : {};
}
