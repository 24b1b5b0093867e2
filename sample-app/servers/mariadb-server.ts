import { once } from 'node:events';
import { join } from 'node:path';
import { createConnection } from 'mysql2/promise';
import { findProgram, requireServer, type NeededServer } from './programs.js';
import { freePort, ServerProcess, spawnGuarded, startAgain } from './server-process.js';
import { copyFolder, templateOf } from './template.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';

export interface MariadbServer extends AsyncDisposable {
  /** With the database `test`. */
  readonly url: string;
  readonly port: number;
  readonly process: ServerProcess;
  /** Ends it, and starts it again with its data. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

const MARIADB: NeededServer = {
  name: 'MariaDB',
  // The second one has a program that mariadb-install-db needs.
  packages: ['mariadb-server-core', 'mariadb-client-core'],
  find: () => (findProgram('my_print_defaults') ? findProgram('mariadbd') : undefined),
  remedy: 'Install one: apt-get install mariadb-server-core mariadb-client-core (as root)',
};

/** What a server that lives for a demo can do without: nothing of it survives. */
const THROW_AWAY = [
  '--innodb-log-file-size=8M',
  '--innodb-buffer-pool-size=16M',
  '--innodb-flush-log-at-trx-commit=0',
  '--innodb-doublewrite=0',
  '--skip-log-bin',
];

/** Starts a MariaDB server of our own on a free port. */
export async function startMariadbServer(
  options: { args?: readonly string[]; port?: number } = {},
): Promise<MariadbServer> {
  const program = requireServer(MARIADB);
  const directory = temporaryDirectory();
  const root = process.getuid?.() === 0 ? ['--user=root'] : [];
  const settingsIn = (folder: string) => {
    // A server that starts deletes the temporary tables of all others in its folder for them.
    const places = [`--datadir=${join(folder, 'data')}`, `--tmpdir=${folder}`];
    return ['--no-defaults', ...root, ...places, '--skip-name-resolve', ...THROW_AWAY];
  };
  const install = (folder: string) => initialize(settingsIn(folder), folder);
  const template = await templateOf('mariadb', install);
  if (template === undefined) await install(directory);
  else await copyFolder(join(template, 'data'), join(directory, 'data'));
  const launch = (port: number) =>
    ServerProcess.start({
      command: program,
      directory,
      args: [...settingsIn(directory), ...placeOf(port, directory), '--max-connections=300', ...(options.args ?? [])],
      ready: () => answersQuery(port, directory),
    });
  for (let attempt = 1; ; attempt++) {
    const port = options.port ?? (await freePort());
    try {
      let server = await launch(port);
      const stop = async () => {
        await server.stop();
        removeDirectory(directory);
      };
      return {
        url: `mysql://root@127.0.0.1:${port}/test`,
        port,
        get process() {
          return server;
        },
        restart: async () => {
          await server.stop();
          server = await startAgain(() => launch(port));
        },
        stop,
        [Symbol.asyncDispose]: stop,
      };
    } catch (error) {
      // Somebody else took the port between our look and the server's bind.
      if (options.port !== undefined || attempt === 5 || !String(error).includes('Address already in use')) throw error;
    }
  }
}

function placeOf(port: number, directory: string): string[] {
  return [`--port=${port}`, '--bind-address=127.0.0.1', `--socket=${join(directory, 'socket')}`];
}

async function initialize(settings: readonly string[], directory: string): Promise<void> {
  const args = [...settings, '--auth-root-authentication-method=normal', '--skip-test-db'];
  // Guarded: a program that outlived us would still write when our folder is removed.
  const child = spawnGuarded({ command: 'mariadb-install-db', args, directory });
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text: Buffer) => (log += text.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`mariadb-install-db failed (${code}):\n${log}`);
}

async function answersQuery(port: number, directory: string): Promise<void> {
  const client = await createConnection({ host: '127.0.0.1', port, user: 'root' });
  try {
    const [rows] = await client.query('SELECT @@datadir AS place');
    const [row] = rows as { place: string }[];
    if (!row?.place.startsWith(directory)) throw new Error('another server answers');
    await client.query('CREATE DATABASE IF NOT EXISTS test');
  } finally {
    await client.end();
  }
}
