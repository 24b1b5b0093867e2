import pg from 'pg';
import type { LockBackend } from 'nest-redis-lock';
import { advisory, leaseTable } from 'nest-redis-lock/postgres';
import { FaultProxy } from '../../support/fault-proxy.js';
import { pausePostgres } from '../../support/paused-postgres.js';
import { startPostgresServer } from '../../support/servers/postgres-server.js';
import type { WorldKind } from '../conforms.js';

/** One PostgreSQL behind a proxy. A crash loses nothing that it has confirmed. */
function postgresWorld(open: (url: string, name: string) => LockBackend, sessions: boolean): WorldKind {
  return {
    faults: ['pause', 'restart', 'cut', 'loseReplies', ...(sessions ? (['killSession'] as const) : [])],
    start: async () => {
      const server = await startPostgresServer({ synchronous_commit: 'on' });
      const proxy = await FaultProxy.start(server.port);
      const names = new WeakMap<LockBackend, string>();
      let opened = 0;
      return {
        open: () => {
          const name = `backend-${++opened}`;
          const backend = open(`postgres://postgres@127.0.0.1:${proxy.port}/postgres`, name);
          names.set(backend, name);
          return backend;
        },
        faults: {
          pause: () => pausePostgres(server),
          restart: () => server.restart(),
          cut: async () => proxy.reset(),
          loseReplies: async () => {
            proxy.hold('reply');
            return async () => {
              proxy.reset();
              proxy.heal();
            };
          },
          killSession: async (backend) => {
            const admin = new pg.Client(server.url);
            await admin.connect();
            const text = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1';
            await admin.query(text, [names.get(backend)]);
            await admin.end();
          },
        },
        stop: async () => {
          await proxy.stop();
          await server.stop();
        },
      };
    },
  };
}

export const leaseTableWorld = postgresWorld(
  (url, name) => leaseTable({ connectionString: url, application_name: name }),
  false,
);

export const advisoryWorld = postgresWorld(
  (url, name) => advisory({ connectionString: url, application_name: name }),
  true,
);
