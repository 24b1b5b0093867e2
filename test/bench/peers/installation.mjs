import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

/** The packages of a benchmark's peers, in exact versions, which are installed outside of the repository. */
export class PeerPackages {
  #manifest;
  #pinned;

  constructor(file) {
    this.#manifest = readFileSync(file, 'utf8');
    this.#pinned = JSON.parse(this.#manifest);
  }

  /** The default folder for their installation: kept from run to run, another one for other versions. */
  get defaultDirectory() {
    const hash = createHash('sha256').update(this.#manifest).digest('hex').slice(0, 8);
    return join(tmpdir(), `${this.#pinned.name}-${hash}`);
  }

  /** What these peers need, installed there if it is not. A folder of another project is used as it is. */
  async install(peers, folder, signal) {
    const directory = resolve(folder);
    const needed = peers.some(({ packages }) => packages.length > 0);
    if (needed && !this.#isComplete(directory) && this.#isOurs(directory)) {
      console.error(`Installing the peers into ${directory}`);
      await mkdir(directory, { recursive: true });
      await writeFile(join(directory, 'package.json'), this.#manifest);
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

  #isOurs(directory) {
    const file = join(directory, 'package.json');
    return !existsSync(file) || JSON.parse(readFileSync(file, 'utf8')).name === this.#pinned.name;
  }

  #isComplete(directory) {
    const packages = installedPackages(directory);
    return Object.entries(this.#pinned.dependencies).every(
      // Under another name, it is `npm:name@version`.
      ([name, version]) => packages[`node_modules/${name}`]?.version === version.split('@').at(-1),
    );
  }
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
