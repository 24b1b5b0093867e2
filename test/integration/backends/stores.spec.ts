import type { LockBackend } from 'nest-redis-lock';
import { advisory, leaseTable } from 'nest-redis-lock/postgres';
import { redlock } from 'nest-redis-lock/redlock';
import { expectJobsAndLeaders, processesTakeTurns } from '../../support/backend-cases.js';
import { type PostgresServer, startPostgresServer } from '../../support/servers/postgres-server.js';
import { type RedlockNodes, startRedlockNodes } from '../../support/servers/redlock-nodes.js';

describe('jobs and leaders', () => {
  /** Backends that keep locks only; test/backends has those whose servers are large. */

  let nodes: RedlockNodes;
  let postgres: PostgresServer;
  beforeAll(async () => {
    [nodes, postgres] = await Promise.all([startRedlockNodes(3), startPostgresServer()]);
  });
  afterAll(() => Promise.all([nodes.stop(), postgres.stop()]));

  it.each<[string, () => LockBackend, boolean]>([
    ['redlock', () => redlock(nodes.urls), true],
    ['a lease table of PostgreSQL', () => leaseTable(postgres.url), true],
    ['advisory locks of PostgreSQL', () => advisory(postgres.url), false],
  ])('runs jobs and elects leaders on %s', (_backend, open, keepsNames) => expectJobsAndLeaders(open, { keepsNames }));
});

it.each(['redlock', 'postgres-advisory'] as const)(
  'processes whose holders await nothing take turns on %s',
  processesTakeTurns,
);
