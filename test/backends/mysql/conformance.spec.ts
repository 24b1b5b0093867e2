import { readdirSync, readFileSync } from 'node:fs';
import { createConnection } from 'mysql2/promise';
import type { LockBackend } from 'nest-redis-lock';
import { getLock, leaseTable } from 'nest-redis-lock/mysql';
import { conforms, otherProcess, SESSIONS_LEAVE_OUT, type WorldKind } from '../../conformance/conforms.js';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startMariadbServer } from '../../support/servers/mariadb-server.js';

/** A signal stops the threads of a process one after the other: until then, one of them may still answer. */
function isStopped(pid: number): boolean {
  const states = readdirSync(`/proc/${pid}/task`).map((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8'),
  );
  return states.every((state) => /\) [Tt] /.test(state));
}

/** A MariaDB server behind a proxy. Each backend is a user of its own. */
function mariadbWorld(open: (url: string) => LockBackend, sessions: boolean): WorldKind {
  return {
    without: sessions ? SESSIONS_LEAVE_OUT : ['acquireSeveral', 'downgrade', 'list', 'queue'],
    faults: ['pause', 'restart', 'cut', 'loseReplies', 'fork', ...(sessions ? (['killSession'] as const) : [])],
    start: async () => {
      const server = await startMariadbServer();
      const proxy = await FaultProxy.start(server.port);
      const users = new Map<LockBackend, string>();
      let opened = 0;
      const administer = async (...statements: readonly string[]) => {
        const admin = await createConnection(server.url);
        for (const statement of statements) await admin.query(statement);
        await admin.end();
      };
      return {
        open: async () => {
          const user = `backend${opened++}`;
          await administer(`CREATE USER ${user}@'%'`, `GRANT ALL ON test.* TO ${user}@'%'`);
          const backend = open(`mysql://${user}@127.0.0.1:${proxy.port}/test`);
          users.set(backend, user);
          return backend;
        },
        faults: {
          pause: async () => {
            server.process.pause();
            await eventually(() => isStopped(server.process.pid));
            return async () => server.process.resume();
          },
          restart: () => server.restart(),
          cut: async () => proxy.reset(),
          fork: () => otherProcess(sessions ? 'mysql-get-lock' : 'mysql', server.port),
          loseReplies: async () => {
            proxy.hold('reply');
            return async () => {
              proxy.reset();
              proxy.heal();
            };
          },
          killSession: (backend) => administer(`KILL CONNECTION USER ${users.get(backend)}`),
        },
        stop: async () => {
          await proxy.stop();
          await server.stop();
        },
      };
    },
  };
}

conforms(
  'mysql, lease table',
  mariadbWorld((url) => leaseTable(url), false),
);
conforms(
  'mysql, GET_LOCK',
  mariadbWorld((url) => getLock(url), true),
);
