import { advisory, leaseTable } from 'nest-redis-lock/postgres';
import pg from 'pg';
import { cli } from '../../../support/cli.js';
import { startLockApp } from '../../../support/lock-app.js';
import { type PostgresServer, startPostgresServer } from '../../../support/servers/postgres-server.js';

let server: PostgresServer;
let db: pg.Pool;

beforeAll(async () => {
  server = await startPostgresServer();
  db = new pg.Pool({ connectionString: server.url });
});
afterAll(async () => {
  await db.end();
  await server.stop();
});

describe('the command line', () => {
  it('finds the locks of each kind and schema, and says where it looked', async () => {
    const inspect = (...args: string[]) =>
      cli(['inspect', 'cli:1', '--backend', 'postgres', '--url', server.url, ...args]);
    await using table = await startLockApp({ backend: leaseTable(server.url, { schema: 'cli_schema' }) });
    await using session = await startLockApp({ backend: advisory(server.url) });
    await using usual = await startLockApp({ backend: leaseTable(server.url) });
    await usual.locks.withLock('cli:2', async () => {});
    const places = [
      [table, ['--schema', 'cli_schema']],
      [session, ['--kind', 'advisory']],
    ] as const;
    for (const [app, args] of places) {
      await app.locks.withLock('cli:1', async () => expect(await inspect(...args)).toMatchObject({ code: 0 }));
    }
    expect(await inspect()).toMatchObject({
      code: 1,
      out: 'Nobody holds "cli:1" by leaseTable in the schema "nest_redis_lock"\n',
    });
  });

  it('creates nothing, and takes a table that is missing for an error', async () => {
    const args = ['cli:1', '--backend', 'postgres', '--url', server.url, '--schema', 'none_such'];
    for (const command of ['inspect', 'release']) {
      const { code, out, err } = await cli([command, ...args]);
      expect({ code, out }).toEqual({ code: 3, out: '' });
      expect(err).toContain('none_such');
    }
    const { rows } = await db.query(`SELECT 1 FROM pg_namespace WHERE nspname = 'none_such'`);
    expect(rows).toEqual([]);
  });

  it.each([
    [['--kind', 'advisory'], '--kind is for --backend postgres or mysql'],
    [['--schema', 'a'], '--schema is for --backend postgres'],
    [['--backend', 'postgres', '--url', 'postgres://h', '--table', 'a'], '--table is for --backend mysql'],
    [['--backend', 'postgres', '--url', 'postgres://h', '--kind', 'getLock'], `give 'leaseTable' or 'advisory'`],
  ])('refuses %j', async (args, says) => {
    const { code, err } = await cli(['inspect', 'cli:1', ...args]);
    expect(code).toBe(2);
    expect(err).toContain(says);
  });
});
