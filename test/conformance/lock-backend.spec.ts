import { type LockBackend, memory } from 'nest-redis-lock';
import { advisory, leaseTable } from 'nest-redis-lock/postgres';
import { redlock } from 'nest-redis-lock/redlock';
import pg from 'pg';
import { FaultProxy } from '../support/fault-proxy.js';
import { pausePostgres } from '../support/paused-postgres.js';
import { startPostgresServer } from '../support/servers/postgres-server.js';
import { startRedlockNodes } from '../support/servers/redlock-nodes.js';
import { conforms, otherProcess, SESSIONS_LEAVE_OUT, type WorldKind } from './conforms.js';

/** Processes are modules that share one instance. */
const memoryWorld: WorldKind = {
  faults: [],
  without: ['queue'],
  start: async () => {
    const backend = memory();
    return { open: () => backend, stop: () => backend.close() };
  },
};

/** Several independent Redis, which all have the same fault at the same time. */
function redlockWorld(count: number): WorldKind {
  return {
    faults: ['pause', 'restart', 'cut', 'loseReplies', 'fork'],
    without: ['downgrade', 'list', 'queue'],
    start: async () => {
      const nodes = await startRedlockNodes(count);
      return {
        open: () => redlock(nodes.urls, { restartDelay: false, nodeTimeout: '4s' }),
        faults: {
          pause: async () => {
            for (const { process } of nodes.servers) process.pause();
            return async () => {
              for (const { process } of nodes.servers) process.resume();
            };
          },
          restart: async () => {
            await Promise.all(nodes.servers.map((_, index) => nodes.restart(index)));
          },
          cut: async () => {
            for (const proxy of nodes.proxies) proxy.reset();
          },
          fork: () => otherProcess('redlock', ...nodes.servers.map(({ port }) => port)),
          loseReplies: async () => {
            for (const proxy of nodes.proxies) proxy.hold('reply');
            return async () => {
              for (const proxy of nodes.proxies) {
                proxy.reset();
                proxy.heal();
              }
            };
          },
        },
        stop: () => nodes.stop(),
      };
    },
  };
}

/** One PostgreSQL behind a proxy. A crash loses nothing that it has confirmed. */
function postgresWorld(open: (url: string, name: string) => LockBackend, sessions: boolean): WorldKind {
  return {
    without: sessions ? SESSIONS_LEAVE_OUT : ['downgrade', 'list'],
    faults: ['pause', 'restart', 'cut', 'loseReplies', 'fork', ...(sessions ? (['killSession'] as const) : [])],
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
          fork: () => otherProcess(sessions ? 'postgres-advisory' : 'postgres', server.port),
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

const leaseTableWorld = postgresWorld(
  (url, name) => leaseTable({ connectionString: url, application_name: name }),
  false,
);

const advisoryWorld = postgresWorld((url, name) => advisory({ connectionString: url, application_name: name }), true);

conforms('memory', memoryWorld);
conforms('redlock on five nodes', redlockWorld(5));
conforms('postgres with a lease table', leaseTableWorld);
conforms('postgres with advisory locks', advisoryWorld);
