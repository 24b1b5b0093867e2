import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { isExecutable } from './find-program.js';
import { temporaryDirectory } from './temporary-directory.js';

export interface SystemUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/** The folder of initdb and postgres, ready to be run by `user`. */
export function preparePostgresBinaries(user: SystemUser | undefined): string {
  const packaged = packagedBinaries();
  if (!user && linksAreThere(packaged) && isExecutable(join(packaged, 'bin', 'postgres'))) return join(packaged, 'bin');
  // A copy, because the user may have no right to read this clone, nor we to write into node_modules.
  const native = join(temporaryDirectory(user), 'native');
  cpSync(packaged, native, { recursive: true, verbatimSymlinks: true });
  restoreLinks(native);
  for (const program of readdirSync(join(native, 'bin'))) chmodSync(join(native, 'bin', program), 0o755);
  if (user) execFileSync('chown', ['-R', `${user.uid}:${user.gid}`, native]);
  return join(native, 'bin');
}

/** The user that PostgreSQL runs as, created if missing: it refuses to run as root. */
export function postgresUser(): SystemUser | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const name = ['postgres', 'embedded-postgres'].find(exists) ?? 'embedded-postgres';
  if (!exists(name)) execFileSync('useradd', ['--system', '--no-create-home', '--user-group', name]);
  return { name, uid: idOf(name, '-u'), gid: idOf(name, '-g') };
}

function packagedBinaries(): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  const require = createRequire(import.meta.url);
  const folders = require.resolve.paths(name) ?? [];
  const native = folders.map((folder) => join(folder, name, 'native')).find(existsSync);
  if (native) return native;
  throw new Error(
    `No PostgreSQL: the package ${name} is not installed. Run npm ci, or set DATABASE_URL=postgres://...`,
  );
}

function linksOf(native: string): { source: string; target: string }[] {
  const list = join(native, 'pg-symlinks.json');
  return existsSync(list) ? (JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]) : [];
}

function linksAreThere(native: string): boolean {
  return linksOf(native).every(({ target }) => existsSync(join(dirname(native), target)));
}

/** npm packages cannot contain links: an install script makes them, if it was allowed to run. */
function restoreLinks(native: string): void {
  for (const { source, target } of linksOf(native)) {
    const link = join(dirname(native), target);
    if (!existsSync(link)) symlinkSync(basename(source), link);
  }
}

function exists(user: string): boolean {
  try {
    idOf(user, '-u');
    return true;
  } catch {
    return false;
  }
}

function idOf(user: string, which: '-u' | '-g'): number {
  return Number(execFileSync('id', [which, user], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }));
}
