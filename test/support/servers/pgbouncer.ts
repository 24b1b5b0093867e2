import { chownSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { findProgram, requireServer } from '../../../sample-app/servers/programs.js';
import { postgresUser } from '../../../sample-app/servers/postgres-server.js';
import { freePort } from '../../../sample-app/servers/server-process.js';
import { ServerProcess } from './server-process.js';
import type { PostgresServer } from './postgres-server.js';
import { removeDirectory, temporaryDirectory } from './temporary-directory.js';

export interface PgBouncer extends AsyncDisposable {
  readonly url: string;
}

/** How long a connection of the server belongs to one client: to the end of its session, transaction or statement. */
export type PoolMode = 'session' | 'transaction' | 'statement';

/** Starts a PgBouncer that shares `size` connections to the server; `more` are settings of pgbouncer.ini. */
export async function startPgBouncer(
  to: PostgresServer,
  mode: PoolMode,
  size: number,
  more: Readonly<Record<string, number | string>> = {},
): Promise<PgBouncer> {
  const program = requireServer({
    name: 'PgBouncer',
    kind: 'pooler',
    packages: ['pgbouncer'],
    find: () => findProgram('pgbouncer'),
    remedy: 'Install it: apt-get install pgbouncer (as root).',
  });
  const user = postgresUser();
  const directory = temporaryDirectory(user);
  const port = await freePort();
  const settings = {
    listen_addr: '127.0.0.1',
    listen_port: port,
    unix_socket_dir: '',
    auth_type: 'any',
    pool_mode: mode,
    default_pool_size: size,
    ignore_startup_parameters: 'extra_float_digits',
    ...more,
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  const database = `* = host=127.0.0.1 port=${to.port} user=postgres`;
  const file = join(directory, 'pgbouncer.ini');
  writeFileSync(file, ['[databases]', database, '[pgbouncer]', ...lines, ''].join('\n'));
  if (user) chownSync(file, user.uid, user.gid);
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const server = await ServerProcess.start({
    command: program,
    directory,
    args: [file],
    ...(user && { user }),
    stopSignal: 'SIGINT',
    ready: async () => {
      const client = new pg.Client(url);
      client.on('error', () => {});
      await client.connect();
      await client.end();
    },
  });
  return {
    url,
    [Symbol.asyncDispose]: async () => {
      await server.kill();
      removeDirectory(directory);
    },
  };
}
